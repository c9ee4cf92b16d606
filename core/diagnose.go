package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Diagnosis is what [Diagnose] found out.
type Diagnosis struct {
	Nodes    []NodeDiagnosis // in the order given; of a Redis Cluster, one for each master
	Findings []Finding       // the gravest first; empty: all is well
	// ClockSpread is by how much the nodes' clocks differ from one another at least, given how long their answers took: the
	// greatest difference of two of them.
	ClockSpread time.Duration
}

// A NodeDiagnosis is what is known of a server. What it does not tell, or its user may not ask, is not guessed: texts are
// then empty, numbers and durations -1, and others say how they show it.
type NodeDiagnosis struct {
	Node    int    // index in the list given; all masters of a Redis Cluster have the same
	Addr    string // where the client tells
	Reached bool   // it answered, be it with an error
	Err     error  // why nothing is known of it

	Mode    string // as INFO has it: standalone, cluster, sentinel
	Role    string // master, or slave
	Version string
	RunID   string
	Uptime  time.Duration

	Clock       ClockFacts
	Guard       GuardFacts
	Memory      MemoryFacts
	Persistence PersistenceFacts
	Replication ReplicationFacts
	Rights      RightsFacts
	Cost        CostFacts

	id        identity
	asCluster bool  // the client treats it as a Redis Cluster's
	refusal   error // of writes
}

// ClockFacts are about the wall clock of a server.
type ClockFacts struct {
	Known  bool
	Offset time.Duration // the server's clock minus this machine's,
	Within time.Duration // exact to so much, which is half of what the quickest answer took
}

// GuardFacts are what the restart guard knows. Of a server of a Redis Cluster, which has many guard records, they are of
// the one that it will take longest to vote by.
type GuardFacts struct {
	State    GuardState
	Declared bool          // new, by Provision: there was nothing to wait for
	Unused   bool          // it has granted nothing since Provision looked at it
	Since    time.Time     // its memory begins, by its own clock; zero where there is none
	Left     time.Duration // of the quarantine; where it has not begun, all of it
	Longest  time.Duration // the longest lease in use, that it knows of
}

// A GuardState says whether a server votes.
type GuardState string

const (
	GuardUnknown     GuardState = ""            // could not be asked
	GuardOff         GuardState = "off"         // there is no restart guard: it votes
	GuardVoting      GuardState = "voting"      // it votes
	GuardQuarantined GuardState = "quarantined" // it may have forgotten leases, and will vote when all of them are over
	GuardChanged     GuardState = "changed"     // likewise; its replication history is another, and the quarantine begins when it is asked for a lock
	GuardMissing     GuardState = "missing"     // likewise; there is no record: it is new, or has forgotten everything
)

// guardStates are from the best on.
var guardStates = []GuardState{GuardUnknown, GuardOff, GuardVoting, GuardQuarantined, GuardChanged, GuardMissing}

// MemoryFacts are about memory, in bytes.
type MemoryFacts struct {
	Used   int64
	Max    int64  // 0 = no limit
	Policy string // what is evicted at the limit
}

// PersistenceFacts are about what outlives a restart.
type PersistenceFacts struct {
	AOF   string // "yes" or "no"
	Fsync string // appendfsync: always, everysec, no
	Save  string // of snapshots, such as "3600 1 300 100"; "no" = none are taken
}

// ReplicationFacts are about the replicas of a server.
type ReplicationFacts struct {
	Replicas   int           // connected; -1 = not known
	Behind     time.Duration // since the one that is furthest behind was heard; -1 = not known, or there is none
	MinToWrite int           // min-replicas-to-write; 0 also where min-replicas-max-lag is 0, which disables it; -1 = not known
	MinMaxLag  time.Duration // min-replicas-max-lag; -1 = not known
	Recorded   bool          // it has a backlog: another replica starts no new history
	BacklogTTL time.Duration // repl-backlog-ttl: so long after the last replica has left, a new history starts; 0 = never; -1 = not known
}

// RightsFacts are about what the client's user may do.
type RightsFacts struct {
	User      string
	Known     bool     // it was tried
	Essential []string // commands that are denied and that nothing works without
	Key       bool     // the keys under the prefix are denied: then it may not be known what else is
	Channel   bool     // the channels are
}

// CostFacts are what requests take, from here.
type CostFacts struct {
	P50, P99 time.Duration // of a command that costs the server nothing (TIME); -1 = not known
	Script   time.Duration // about what a script takes beyond that: the time that the server works on it; -1 = not known
}

// Diagnose examines the servers behind nodes, and says what is wrong with them and how to mend it. It is for people and
// checks that look at the nodes before, or while, Lockers are at work on them: it needs no Locker, so also servers that New
// refuses can be looked at. opts are those of the Lockers: prefix, TTLs, clock window and guard are what nodes are held
// against.
//
// It asks all servers at once, each some forty short requests, and does not wait for the answer to any of them for longer
// than the node timeout; of a server that does not answer one, nothing more is asked. Where servers are slow it takes ten node
// timeouts at most. A client that heeds no contexts may go on with such a request by itself, until its own timeouts.
//
// It begins no quarantine and changes nothing, but that it tries the rights of the client's user on a key of its own, which
// it deletes, and subscribes once. What the user may not ask (CONFIG GET, ACL WHOAMI) is not known then, and no finding
// guesses it; the rights are those of the client's user: to check those of a service, run it with the service's.
//
// A server that is down, or in whatever trouble, is a finding and no error. The error matches ErrInvalid, where options or
// clients are unfit, or is the error and cause of ctx, when that has ended.
func Diagnose(ctx context.Context, nodes []redis.UniversalClient, opts ...Option) (Diagnosis, error) {
	if ctx == nil {
		return Diagnosis{}, errNoContext
	}
	p, err := defaults().with(opts).policy(len(nodes))
	if err := errors.Join(err, checkClients(nodes)); err != nil {
		return Diagnosis{}, fmt.Errorf("lockkit: %w: %w", ErrInvalid, err)
	}
	buckets := 1
	if slices.ContainsFunc(nodes, func(c redis.UniversalClient) bool { return clusterOf(c) != nil }) {
		buckets = clusterBuckets
	}
	keys := newKeyspace(p.prefix, buckets)
	found := make([]chan []NodeDiagnosis, len(nodes))
	for i, c := range nodes {
		found[i] = make(chan []NodeDiagnosis, 1)
		go func() { found[i] <- examineNode(ctx, i, c, &p, keys) }()
	}
	d := diagnosis{p: &p, count: len(nodes)}
	for i := range nodes {
		d.Nodes = append(d.Nodes, <-found[i]...) // soon, also when ctx has ended
	}
	if err := ctx.Err(); err != nil {
		if cause := context.Cause(ctx); !errors.Is(cause, err) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return Diagnosis{}, fmt.Errorf("lockkit: diagnose: %w", err)
	}
	d.ClockSpread = clockSpread(d.Nodes)
	d.judge()
	slices.SortStableFunc(d.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)), cmp.Compare(a.Node, b.Node))
	})
	return d.Diagnosis, nil
}

// A diagnosis is a Diagnosis that is being made.
type diagnosis struct {
	Diagnosis
	p     *policy
	count int // of nodes
}

// clockSpread is by how much clocks differ for certain.
func clockSpread(nodes []NodeDiagnosis) (spread time.Duration) {
	for _, a := range nodes {
		for _, b := range nodes {
			if a.Clock.Known && b.Clock.Known {
				spread = max(spread, a.Clock.Offset-b.Clock.Offset-a.Clock.Within-b.Clock.Within)
			}
		}
	}
	return spread
}
