package core

// A Severity says how bad a [Finding] is.
type Severity string

const (
	SeverityFault   Severity = "fault"   // the node cannot take part until somebody mends it, or nobody can be granted a key
	SeverityRisk    Severity = "risk"    // everything works, and a fault that is to be expected can make two holders of a key
	SeverityWarning Severity = "warning" // something works less well than it could, or passes by itself
)

// A FindingCode names a kind of [Finding], for programs: it does not change, while texts may.
type FindingCode string

const (
	CodeUnreachable    FindingCode = "unreachable"     // no answer: refused, timed out, no such host
	CodeCredentials    FindingCode = "credentials"     // user or password are refused
	CodeTLS            FindingCode = "tls"             // the TLS handshake fails
	CodeRefused        FindingCode = "refused"         // it answers with an error: busy, loading, no such database
	CodeNoNode         FindingCode = "no_node"         // a Sentinel, a server of a Redis Cluster behind a plain client, or one without replication history
	CodeReplica        FindingCode = "replica"         // a replica of another server
	CodeEvicting       FindingCode = "evicting"        // may evict a held lock
	CodeTooOld         FindingCode = "too_old"         // older than Redis 6.2.7
	CodeSameServer     FindingCode = "same_server"     // listed twice
	CodeRights         FindingCode = "rights"          // commands are denied that nothing works without
	CodeWritesRefused  FindingCode = "writes_refused"  // out of memory, too few replicas, a disk that fails
	CodeClockOff       FindingCode = "clock_off"       // beyond the clock window
	CodeNotProvisioned FindingCode = "not_provisioned" // no node has a guard record
	CodeQuarantined    FindingCode = "quarantined"     // does not vote until every lease that it may have forgotten is over
	CodeNotDurable     FindingCode = "not_durable"     // a restart forgets held locks, and nothing guards against that
	CodeUnguarded      FindingCode = "unguarded"       // replicas, and no restart guard
	CodeReplicaLag     FindingCode = "replica_lag"     // replicas, and a replica lag that is missing or too short, or a primary that serves without them
	CodeNoQuorum       FindingCode = "no_quorum"       // too few nodes vote
)

// A Finding is something that an operator should know, and what to do about it.
type Finding struct {
	Severity Severity
	Code     FindingCode
	What     string // what is wrong, to be read after the name of the node
	Mend     string // what to do
}

// A NodeDiagnosis is what is wrong with a server. What it does not tell, or its user may not ask, is not guessed.
type NodeDiagnosis struct {
	Node     int    // index in the list given; all masters of a Redis Cluster have the same
	Addr     string // where the client tells
	Reached  bool   // it answered, be it with an error
	Err      error  // why nothing is known of it, or not all
	Findings []Finding
}
