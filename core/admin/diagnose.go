package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/inside"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A Diagnosis is the result of [Diagnose].
type Diagnosis struct {
	Nodes    []NodeDiagnosis // in the order given; of a Redis Cluster, one for each master
	Findings []Finding       // about several nodes, or all
}

// Diagnose examines the servers behind nodes, and reports their problems and how to fix them: whether they can be
// reached and may be nodes, what their users may do, whether clocks, guards and replicas let them vote, whether they
// accept writes, and what a restart would forget. It is for people and checks, before Lockers use the nodes or while
// they do. It needs no Locker, so it can also examine servers that New rejects. opts are the options of the Lockers:
// the nodes are compared with their prefix, TTLs, clock window and guard.
//
// Diagnose asks all servers at once, each about a dozen short requests. It waits for each answer for at most the node
// timeout. If a server does not answer a request, it is not asked again. If servers are slow, Diagnose takes ten node
// timeouts at most. A client that ignores contexts may continue such a request until its own timeouts.
//
// Diagnose begins no quarantine and changes nothing, except that it tries the rights of the client's user on a key of
// its own, which it deletes, and subscribes once. Facts that the user may not read (CONFIG GET) are unknown then. The
// rights are those of the client's user: to check the rights of a service, run Diagnose with the service's user.
//
// A server that is down or in trouble is a finding, not an error. The error matches ErrInvalid if options or clients
// are invalid, or is the error and cause of ctx if ctx has ended.
func Diagnose(ctx context.Context, nodes []redis.UniversalClient, opts ...core.Option) (Diagnosis, error) {
	if ctx == nil {
		return Diagnosis{}, fmt.Errorf("lockkit: diagnose: %w: the context is nil", core.ErrInvalid)
	}
	conf, err := inside.Config(nodes, opts)
	if err != nil {
		return Diagnosis{}, err
	}

	found := make([][]*node.Examination, len(nodes))
	keys := node.KeysOver(nodes, conf)
	var examined sync.WaitGroup
	for i, c := range nodes {
		examined.Go(func() { found[i] = node.Examine(ctx, i, c, conf, keys) })
	}
	examined.Wait() // returns soon if ctx has ended
	if err := inside.ContextError(ctx); err != nil {
		return Diagnosis{}, fmt.Errorf("lockkit: diagnose: %w", err)
	}

	d := diagnosis{nodes: len(nodes), servers: slices.Concat(found...)}
	d.addFindings()
	for _, x := range d.servers {
		d.Nodes = append(d.Nodes, diagnosisOf(x))
	}
	return d.Diagnosis, nil
}

// diagnosisOf returns the diagnosis of one server.
func diagnosisOf(x *node.Examination) NodeDiagnosis {
	d := NodeDiagnosis{
		Node:          x.Node,
		Addr:          x.Addr,
		Reached:       x.Reached,
		Err:           x.Err,
		LongestMaxTTL: x.Longest.TTL,
		LongestFor:    x.Longest.Age,
	}
	for _, f := range x.Flaws {
		d.Findings = append(d.Findings, Finding(f))
	}
	return d
}

// Severities of a [Finding].
const (
	SeverityFault   = "fault"   // the node cannot take part until it is fixed, or no key can be granted
	SeverityRisk    = "risk"    // everything works, but an expected fault can make two holders of a key
	SeverityWarning = "warning" // something works less well than it could, or will go away without action
)

// Kinds of a [Finding], for programs. They do not change; texts may.
const (
	CodeUnreachable    = "unreachable"     // no answer: refused, timed out, no such host
	CodeCredentials    = "credentials"     // user or password are refused
	CodeTLS            = "tls"             // the TLS handshake fails
	CodeRefused        = "refused"         // it answers with an error: busy, loading, no such database
	CodeNoNode         = "no_node"         // a Sentinel, part of a Cluster, or without replication history
	CodeReplica        = "replica"         // a replica of another server
	CodeEvicting       = "evicting"        // may evict a held lock
	CodeTooOld         = "too_old"         // older than Redis 6.2.7
	CodeSameServer     = "same_server"     // listed twice
	CodeRights         = "rights"          // denied commands without which nothing works
	CodeWritesRefused  = "writes_refused"  // out of memory, too few replicas, a disk that fails
	CodeClockOff       = "clock_off"       // beyond the clock window
	CodeNotProvisioned = "not_provisioned" // no node has a guard record
	CodeQuarantined    = "quarantined"     // does not vote until every lease that it may have forgotten is over
	CodeNotDurable     = "not_durable"     // a restart forgets held locks, and nothing guards against that
	CodeUnguarded      = "unguarded"       // replicas, and no restart guard
	CodeReplicaLag     = "replica_lag"     // replicas, and a replica lag that is missing or too short
	CodeNoQuorum       = "no_quorum"       // too few nodes vote
	CodeLongerMaxTTL   = "longer_max_ttl"  // nodes know a longer max TTL than that of the options
)

// A Finding is a problem that an operator should know, with its fix.
type Finding struct {
	Severity string
	Code     string
	What     string // the problem, to be read after the name of the node
	Fix      string // the fix
}

// A NodeDiagnosis has the problems of one server. If the server does not report a value, or the user may not read it,
// the value is not guessed.
type NodeDiagnosis struct {
	Node     int    // index in the list given; all masters of a Redis Cluster have the same
	Addr     string // its address, if the client tells it
	Reached  bool   // it answered, possibly with an error
	Err      error  // why nothing is known of it, or only a part
	Findings []Finding

	// LongestMaxTTL is the longest max TTL that any process has reported to the node. If the node loses its memory,
	// it does not vote for this long. It is 0 if there is no restart guard, or if it is unknown. It has been the
	// longest for LongestFor, or for longer if the node has lost its memory since. Only lockctl lower-max-ttl lowers
	// it.
	LongestMaxTTL, LongestFor time.Duration
}

// A diagnosis is a Diagnosis in progress: it applies the rules below to the examinations.
type diagnosis struct {
	Diagnosis
	nodes   int
	servers []*node.Examination
}

// addFindings applies all rules.
func (d *diagnosis) addFindings() {
	for _, x := range d.servers {
		d.checkServer(x)
	}

	// If all nodes are new, it is clear why no quorum votes.
	provisioned := d.checkProvisioned()
	if provisioned {
		d.checkQuorum()
	}
	d.checkMaxTTL()
}

// checkServer applies the rules about one server.
func (d *diagnosis) checkServer(x *node.Examination) {
	isOutside := x.AddFlaws()
	if isOutside {
		return
	}
	isListedTwice := d.checkListedTwice(x)
	if isListedTwice {
		return
	}

	checkClock(x)
	x.AddMissingRights()
	if x.WriteRefusal != nil {
		fix := cmp.Or(goredis.TroubleOf(x.WriteRefusal).Fix, "look at the server's log")
		x.AddFlaw(SeverityFault, CodeWritesRefused, "takes no writes: "+x.WriteRefusal.Error(), fix)
	}
	checkGuard(x, d.inUse())
	checkDurability(x)
	checkReplicas(x)
}

// checkListedTwice adds a finding if the server is the same as an earlier one, and reports whether it is.
func (d *diagnosis) checkListedTwice(x *node.Examination) bool {
	// The ids of two servers differ. Without an id, a server is only the same as itself.
	id := x.Info["run_id"]
	i := slices.IndexFunc(d.servers, func(other *node.Examination) bool {
		return other == x || id != "" && other.Info["run_id"] == id
	})
	first := d.servers[i]
	if first == x {
		return false
	}

	name := node.Name(first.Node, first.Addr)
	x.AddFlaw(
		SeverityFault, CodeSameServer,
		fmt.Sprintf("is the same server as %s, which would have two votes", name),
		"list each server once, under one address",
	)
	return true
}

// checkClock adds a finding if the clock of the node is certainly off, given how long its answer took.
func checkClock(x *node.Examination) {
	window := x.Conf.Window
	isChecked := x.Clock.Known && window > 0
	if !isChecked {
		return
	}
	leastOffset := x.Clock.Offset.Abs() - x.Clock.MaxError
	if leastOffset <= window {
		return
	}

	offset := x.Clock.Offset.Round(time.Millisecond)
	x.AddFlaw(
		SeverityFault, CodeClockOff,
		fmt.Sprintf("its clock is off by %v, more than the clock window of %v: it does not vote", offset, window),
		"mend NTP on its machine, or on this one where most nodes are off alike, and do not widen the window",
	)
}

// inUse reports whether any node has a guard record other than a fresh one.
func (d *diagnosis) inUse() bool {
	return slices.ContainsFunc(d.servers, func(x *node.Examination) bool {
		hasRecord := x.Guard.State != wire.GuardUnknown && x.Guard.State != wire.GuardMissing
		return hasRecord && !x.Guard.Fresh
	})
}

// rounded returns a duration as text, rounded to tenths of a second.
func rounded(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// checkGuard adds a finding if the node does not vote because it may have forgotten leases. inUse reports that
// another node has a guard record.
func checkGuard(x *node.Examination, inUse bool) {
	left := rounded(x.Guard.Remaining)
	switch {
	case x.Guard.State == wire.GuardMissing && inUse:
		// If no node is in use, checkProvisioned reports that all are new.
		x.AddFlaw(
			SeverityWarning, CodeQuarantined,
			"has no guard record, beside nodes that have one: it has lost its memory "+
				"(flushed, restarted without its data), or is new",
			fmt.Sprintf("nothing, it votes by itself %s after it is next asked; "+
				"find out what emptied it, and empty no other node before then", left),
		)

	case x.Guard.State == wire.GuardChanged:
		x.AddFlaw(
			SeverityWarning, CodeQuarantined,
			"its guard record is of another replication history: it was restarted or promoted, "+
				"or its first replica was attached (as redis-cli --rdb does, too)",
			fmt.Sprintf("nothing, it votes by itself %s after it is next asked; "+
				"restart, attach or back up one node at a time", left),
		)

	case x.Guard.State == wire.GuardQuarantined && (inUse || !x.Guard.Fresh):
		x.AddFlaw(
			SeverityWarning, CodeQuarantined,
			"is quarantined, because it is new, was restarted, or may have forgotten locks: it does not vote",
			fmt.Sprintf("nothing, it votes by itself in %s; restart no other node before", left),
		)
	}
}

// checkProvisioned adds a finding if all nodes are new, and reports false if they are.
func (d *diagnosis) checkProvisioned() bool {
	left := time.Duration(-1)
	for _, x := range d.servers {
		if x.Guard.State != wire.GuardUnknown {
			left = max(left, x.Guard.Remaining)
		}
	}
	isGuarded := left >= 0
	if !isGuarded || d.inUse() {
		return true
	}

	d.Findings = append(d.Findings, Finding{
		SeverityWarning, CodeNotProvisioned,
		"no node that was reached has a guard record: they are new, or all have lost their memory",
		fmt.Sprintf("if they are new, declare them so (lockctl provision, or admin.Provision); "+
			"otherwise they vote by themselves %s after they are first asked", rounded(left)),
	})
	return false
}

// checkDurability adds a finding if a restart of the server forgets locks and nothing guards against that.
func checkDurability(x *node.Examination) {
	isDurable := x.Info["aof_enabled"] != "0"
	if isDurable || x.Conf.Guarded {
		return
	}
	x.AddFlaw(
		SeverityRisk, CodeNotDurable,
		"keeps no append-only file, and the restart guard is off: "+
			"after a restart it grants keys that are held, and knows of nothing done before",
		"set appendonly yes and appendfsync always; "+
			"or, which saves no completion records, turn the guard on (WithRestartGuard) in all processes",
	)
}

// checkReplicas adds a finding if a failover of the server forgets locks and nothing guards against that.
func checkReplicas(x *node.Examination) {
	replicas, _ := strconv.Atoi(x.Info["connected_slaves"])
	// INFO has this field only if the primary stops serving without its replicas.
	_, stops := x.Info["min_slaves_good_slaves"]
	switch {
	case replicas == 0: // no failover

	case !x.Conf.Guarded:
		x.AddFlaw(
			SeverityRisk, CodeUnguarded,
			fmt.Sprintf("has replicas (%d), and the restart guard is off: "+
				"one that is promoted grants keys that are held", replicas),
			"set WithRestartGuard(true) and WithReplicaLag in all processes, unless nothing ever promotes one",
		)

	case x.Conf.Lag == 0:
		x.AddFlaw(
			SeverityRisk, CodeReplicaLag,
			fmt.Sprintf("has replicas (%d), and there is no replica lag: "+
				"when one is promoted, this server may go on confirming leases beside it", replicas),
			"set WithReplicaLag to min-replicas-max-lag and a second more, in all processes, "+
				"unless nothing ever promotes one",
		)

	case !stops:
		x.AddFlaw(
			SeverityRisk, CodeReplicaLag,
			"min-replicas-to-write or min-replicas-max-lag is 0: "+
				"cut off from its replicas it goes on serving, beside the one that is promoted",
			"set min-replicas-to-write 1 and min-replicas-max-lag 2, with two replicas for each primary",
		)

	case x.MaxLag >= 0 && x.Conf.Lag < x.MaxLag+time.Second:
		x.AddFlaw(
			SeverityRisk, CodeReplicaLag,
			fmt.Sprintf("min-replicas-max-lag is %v, "+
				"so without its replicas it may serve for longer than the replica lag of %v", x.MaxLag, x.Conf.Lag),
			fmt.Sprintf("set WithReplicaLag to %v, in all processes", x.MaxLag+time.Second),
		)
	}
}

// checkMaxTTL adds a finding if nodes know a longer max TTL than the options, and names these nodes.
func (d *diagnosis) checkMaxTTL() {
	var longest *node.Examination
	var names []string
	seen := map[int]bool{}
	for _, x := range d.servers {
		if x.Longest.TTL <= x.Conf.MaxTTL {
			continue
		}
		if longest == nil || x.Longest.TTL > longest.Longest.TTL {
			longest = x
		}

		// All masters of a Redis Cluster have the index of one node.
		isNamed := seen[x.Node]
		if !isNamed {
			names = append(names, node.Name(x.Node, x.Addr))
		}
		seen[x.Node] = true
	}
	if longest == nil {
		return
	}

	age := longest.Longest.Age.Round(time.Second)
	d.Findings = append(d.Findings, Finding{
		SeverityWarning, CodeLongerMaxTTL,
		fmt.Sprintf("some process uses, or has used, a longer max TTL than %v: %v, since %v ago. "+
			"A node that loses its memory does not vote for so long. It is known to %s",
			longest.Conf.MaxTTL, longest.Longest.TTL, age, strings.Join(names, ", ")),
		"set it in all processes (WithMaxTTL; --max-ttl of lockctl). If none uses it any more, " +
			"stop all that lock on these nodes, run lockctl lower-max-ttl, and start them",
	})
}

// checkQuorum adds a finding if too few nodes vote. A single node needs none, because its own findings say it all.
func (d *diagnosis) checkQuorum() {
	cannotVote := func(f node.Flaw) bool { return f.Severity == SeverityFault || f.Code == CodeQuarantined }

	// If one master of a Redis Cluster cannot vote, the node cannot vote for some keys.
	out := map[int]bool{}
	for _, x := range d.servers {
		if slices.ContainsFunc(x.Flaws, cannotVote) {
			out[x.Node] = true
		}
	}

	votes := d.nodes - len(out)
	if d.nodes <= 1 || votes >= quorum.Of(d.nodes) {
		return
	}
	d.Findings = append(d.Findings, Finding{
		SeverityFault, CodeNoQuorum,
		fmt.Sprintf("%d of %d nodes would vote, too few to grant a key", votes, d.nodes),
		"mend what is said of each of the others",
	})
}
