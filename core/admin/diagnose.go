package admin

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/node"
)

// A Diagnosis is what [Diagnose] found out.
type Diagnosis struct {
	Nodes    []NodeDiagnosis // in the order given; of a Redis Cluster, one for each master
	Findings []Finding       // about several nodes, or all
}

// Diagnose examines the servers behind nodes, and says what is wrong with them and how to mend it: whether they can be
// reached and may be nodes, what their users may do, whether clocks, guards and replicas let them vote, whether they take
// writes, and what a restart would forget. It is for people and checks that look at the nodes before, or while, Lockers are
// at work on them: it needs no Locker, so also servers that New refuses can be looked at. opts are those of the Lockers:
// prefix, TTLs, clock window and guard are what nodes are held against.
//
// It asks all servers at once, each about a dozen short requests, and does not wait for the answer to any of them for longer
// than the node timeout; of a server that does not answer one, nothing more is asked. Where servers are slow it takes ten node
// timeouts at most. A client that heeds no contexts may go on with such a request by itself, until its own timeouts.
//
// It begins no quarantine and changes nothing, but that it tries the rights of the client's user on a key of its own, which
// it deletes, and subscribes once. What the user may not ask (CONFIG GET) is not known then; the rights are those of the
// client's user: to check those of a service, run it with the service's.
//
// A server that is down, or in whatever trouble, is a finding and no error. The error matches ErrInvalid, where options or
// clients are unfit, or is the error and cause of ctx, when that has ended.
func Diagnose(ctx context.Context, nodes []redis.UniversalClient, opts ...core.Option) (Diagnosis, error) {
	if ctx == nil {
		return Diagnosis{}, fmt.Errorf("lockkit: diagnose: %w: the context is nil", core.ErrInvalid)
	}
	conf, err := inside.Config(nodes, opts)
	if err != nil {
		return Diagnosis{}, err
	}
	keys := node.KeysOver(nodes, conf)
	found := make([][]*node.Examination, len(nodes))
	var examined sync.WaitGroup
	for i, c := range nodes {
		examined.Go(func() { found[i] = node.Examine(ctx, i, c, conf, keys) })
	}
	examined.Wait() // soon, also when ctx has ended
	if err := inside.EndOf(ctx); err != nil {
		return Diagnosis{}, fmt.Errorf("lockkit: diagnose: %w", err)
	}
	d := diagnosis{nodes: len(nodes), conf: conf, servers: slices.Concat(found...)}
	d.judge()
	for _, x := range d.servers {
		n := NodeDiagnosis{Node: x.Node, Addr: x.Addr, Reached: x.Reached, Err: x.Err}
		for _, f := range x.Flaws {
			n.Findings = append(n.Findings, Finding(f))
		}
		d.Nodes = append(d.Nodes, n)
	}
	return d.Diagnosis, nil
}

// How bad a [Finding] is.
const (
	SeverityFault   = "fault"   // the node cannot take part until somebody mends it, or nobody can be granted a key
	SeverityRisk    = "risk"    // everything works, and a fault that is to be expected can make two holders of a key
	SeverityWarning = "warning" // something works less well than it could, or passes by itself
)

// Kinds of a [Finding], for programs: they do not change, while texts may.
const (
	CodeUnreachable    = "unreachable"     // no answer: refused, timed out, no such host
	CodeCredentials    = "credentials"     // user or password are refused
	CodeTLS            = "tls"             // the TLS handshake fails
	CodeRefused        = "refused"         // it answers with an error: busy, loading, no such database
	CodeNoNode         = "no_node"         // a Sentinel, a server of a Redis Cluster behind a plain client, or one without replication history
	CodeReplica        = "replica"         // a replica of another server
	CodeEvicting       = "evicting"        // may evict a held lock
	CodeTooOld         = "too_old"         // older than Redis 6.2.7
	CodeSameServer     = "same_server"     // listed twice
	CodeRights         = "rights"          // commands are denied that nothing works without
	CodeWritesRefused  = "writes_refused"  // out of memory, too few replicas, a disk that fails
	CodeClockOff       = "clock_off"       // beyond the clock window
	CodeNotProvisioned = "not_provisioned" // no node has a guard record
	CodeQuarantined    = "quarantined"     // does not vote until every lease that it may have forgotten is over
	CodeNotDurable     = "not_durable"     // a restart forgets held locks, and nothing guards against that
	CodeUnguarded      = "unguarded"       // replicas, and no restart guard
	CodeReplicaLag     = "replica_lag"     // replicas, and a replica lag that is missing or too short, or a primary that serves without them
	CodeNoQuorum       = "no_quorum"       // too few nodes vote
)

// A Finding is something that an operator should know, and what to do about it.
type Finding struct {
	Severity string
	Code     string
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
