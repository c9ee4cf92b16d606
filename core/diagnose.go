package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
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
func Diagnose(ctx context.Context, nodes []redis.UniversalClient, opts ...Option) (Diagnosis, error) {
	if ctx == nil {
		return Diagnosis{}, errNoContext
	}
	p, err := defaults().with(opts).policy(len(nodes))
	if err := errors.Join(append([]error{err}, goredis.Check(nodes, quorum.MaxNodes)...)...); err != nil {
		return Diagnosis{}, fmt.Errorf("lockkit: %w: %w", ErrInvalid, err)
	}
	keys := node.KeysOver(nodes, &p.Config)
	found := make([][]*node.Examination, len(nodes))
	var examined sync.WaitGroup
	for i, c := range nodes {
		examined.Go(func() { found[i] = node.Examine(ctx, i, c, &p.Config, keys) })
	}
	examined.Wait() // soon, also when ctx has ended
	d := diagnosis{p: &p}
	for _, x := range slices.Concat(found...) {
		d.servers = append(d.servers, server{x})
	}
	if err := endOf(ctx); err != nil {
		return Diagnosis{}, fmt.Errorf("lockkit: diagnose: %w", err)
	}
	d.judge()
	for _, x := range d.servers {
		n := NodeDiagnosis{Node: x.Node, Addr: x.Addr, Reached: x.Reached, Err: x.Err}
		for _, f := range x.Flaws {
			n.Findings = append(n.Findings, Finding{Severity(f.Severity), FindingCode(f.Code), f.What, f.Mend})
		}
		d.Nodes = append(d.Nodes, n)
	}
	return d.Diagnosis, nil
}

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
