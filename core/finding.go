package core

import "fmt"

// A Severity says how bad a [Finding] is.
type Severity string

const (
	SeverityFault   Severity = "fault"   // the node cannot take part until somebody mends it, or nobody can be granted a key
	SeverityRisk    Severity = "risk"    // everything works, and a fault that is to be expected can make two holders of a key
	SeverityWarning Severity = "warning" // something works less well than it could, or passes by itself
	SeverityNote    Severity = "note"    // nothing is wrong; it is good to know
)

// severities are from the gravest on.
var severities = []Severity{SeverityFault, SeverityRisk, SeverityWarning, SeverityNote}

// A FindingCode names a kind of [Finding], for programs: it does not change, while texts may.
type FindingCode string

const (
	CodeUnreachable     FindingCode = "unreachable"       // no answer: refused, timed out, no such host
	CodeCredentials     FindingCode = "credentials"       // user or password are refused
	CodeTLS             FindingCode = "tls"               // the TLS handshake fails
	CodeRefused         FindingCode = "refused"           // it answers with an error: busy, loading, no such database
	CodeSentinel        FindingCode = "sentinel"          // a Sentinel, not a server of data
	CodeCluster         FindingCode = "cluster"           // a server of a Redis Cluster behind a plain client
	CodeReplica         FindingCode = "replica"           // a replica of another server
	CodeEvicting        FindingCode = "evicting"          // may evict a held lock
	CodeTooOld          FindingCode = "too_old"           // older than Redis 6.2.7
	CodeNoHistory       FindingCode = "no_history"        // does not report its replication history
	CodeSameServer      FindingCode = "same_server"       // listed twice
	CodeRights          FindingCode = "rights"            // commands are denied that nothing works without
	CodeInfoDenied      FindingCode = "info_denied"       // without INFO most checks cannot be made
	CodeWritesRefused   FindingCode = "writes_refused"    // out of memory, too few replicas, a disk that fails
	CodeClockOff        FindingCode = "clock_off"         // beyond the clock window
	CodeClockDrifting   FindingCode = "clock_drifting"    // beyond half of it
	CodeNotProvisioned  FindingCode = "not_provisioned"   // no node has a guard record
	CodeGuardMissing    FindingCode = "guard_missing"     // a node without a guard record beside nodes in use
	CodeHistoryChanged  FindingCode = "history_changed"   // promoted, restarted from a snapshot, or got its first replica
	CodeQuarantined     FindingCode = "quarantined"       // does not vote until every lease that it may have forgotten is over
	CodeMaxTTL          FindingCode = "max_ttl"           // the longest lease in use is not the max TTL
	CodeNotDurable      FindingCode = "not_durable"       // a restart forgets held locks, and nothing guards against that
	CodeFsync           FindingCode = "fsync"             // a crash of the machine forgets the last writes
	CodeRecordsInMemory FindingCode = "records_in_memory" // a restart forgets completion records
	CodeUnguarded       FindingCode = "unguarded"         // replicas, and no restart guard
	CodeReplicaLag      FindingCode = "replica_lag"       // replicas, and a replica lag that is missing or too short
	CodeMinReplicas     FindingCode = "min_replicas"      // replicas, and a primary that serves without them
	CodeReplicaBehind   FindingCode = "replica_behind"    // a replica that does not keep up
	CodeFirstReplica    FindingCode = "first_replica"     // what the first replica of a node starts
	CodeLastReplica     FindingCode = "last_replica"      // what its leaving starts, later
	CodeMemory          FindingCode = "memory"            // nearly full
	CodeSlow            FindingCode = "slow"              // requests take much of the node timeout
	CodeSameHost        FindingCode = "same_host"         // nodes that fail together
	CodeEven            FindingCode = "even"              // an even number of nodes
	CodeNoQuorum        FindingCode = "no_quorum"         // too few nodes vote
)

// A Finding is something that an operator should know, and what to do about it.
type Finding struct {
	Severity Severity
	Code     FindingCode
	Node     int    // index in the list of nodes; -1 = all, or several that What names
	Addr     string // the server's, where the client tells
	What     string // what is wrong
	Mend     string // what to do
}

// String is the finding in one line.
func (f Finding) String() string {
	if f.Node < 0 {
		return fmt.Sprintf("%s: %s: %s", f.Severity, f.What, f.Mend)
	}
	return fmt.Sprintf("%s: %s %s: %s", f.Severity, nodeName(f.Node, f.Addr), f.What, f.Mend)
}
