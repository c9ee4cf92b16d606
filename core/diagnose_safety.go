package core

import (
	"fmt"
	"slices"
	"time"
)

// The rules about what a node remembers: guard, persistence, replicas.

// inUse reports whether any node has a guard record.
func (d *diagnosis) inUse() bool {
	return slices.ContainsFunc(d.Nodes, func(n NodeDiagnosis) bool {
		return slices.Contains([]GuardState{GuardVoting, GuardQuarantined, GuardChanged}, n.Guard.State) && !n.fresh()
	})
}

// fresh reports whether Provision has begun with the node, and not ended.
func (n *NodeDiagnosis) fresh() bool { return n.Guard.Unused && !n.Guard.Declared }

func inRound(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

func guardMissing(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.Guard.State != GuardMissing || !d.inUse() {
		return "", ""
	}
	return "has no guard record, beside nodes that have one: it has lost its memory (flushed, restarted without its data), or is new",
		fmt.Sprintf("nothing, it votes by itself %s after it is next asked; find out what emptied it, and empty no other node before then", inRound(n.Guard.Left))
}

func historyChanged(_ *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.Guard.State != GuardChanged {
		return "", ""
	}
	what = "its guard record is of another replication history: it was restarted, or promoted, and may have forgotten locks"
	if n.Replication.Replicas > 0 || n.Replication.Recorded {
		what = "its guard record is of another replication history: its first replica was attached (as redis-cli --rdb does, too), or it was promoted or restarted"
	}
	return what, fmt.Sprintf("nothing, it votes by itself %s after it is next asked; restart, attach or back up one node at a time", inRound(n.Guard.Left))
}

func quarantined(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	switch {
	case n.Guard.State != GuardQuarantined || n.fresh() && !d.inUse():
		return "", ""
	}
	return "is quarantined, because it is new, was restarted, or may have forgotten locks: it does not vote",
		fmt.Sprintf("nothing, it votes by itself in %s; restart no other node before", inRound(n.Guard.Left))
}

func notProvisioned(d *diagnosis) (what, mend string) {
	unknown, left := true, time.Duration(0)
	for _, n := range d.Nodes {
		switch {
		case n.Guard.State == GuardUnknown:
		case n.Guard.State == GuardMissing || n.Guard.State == GuardQuarantined && n.fresh():
			unknown, left = false, max(left, n.Guard.Left)
		default:
			return "", ""
		}
	}
	if unknown || !d.p.guarded {
		return "", ""
	}
	return "no node that was reached has a guard record: they are new, or all have lost their memory",
		fmt.Sprintf("if they are new, declare them so (Locker.Provision); otherwise they vote by themselves %s after they are first asked", inRound(left))
}

// longest is the longest lease in use.
func (d *diagnosis) longest() (longest time.Duration) {
	for _, n := range d.Nodes {
		longest = max(longest, n.Guard.Longest)
	}
	return longest
}

func longerTTLInUse(d *diagnosis) (what, mend string) {
	if d.longest() <= d.p.maxTTL {
		return "", ""
	}
	return fmt.Sprintf("a process uses, or has used, a max TTL of %v, and the one given here is %v", d.longest(), d.p.maxTTL), "set WithMaxTTL to the longest in all processes"
}

func shorterTTLInUse(d *diagnosis) (what, mend string) {
	if longest := d.longest(); longest <= 0 || longest >= d.p.maxTTL {
		return "", ""
	}
	return fmt.Sprintf("the max TTL given here is %v, and nodes know of %v", d.p.maxTTL, d.longest()), "nothing, if processes with the longer one are yet to start; else give the same here"
}

// keeps reports whether a restart of the server itself leaves it what it knew.
func (n *NodeDiagnosis) keeps() bool { return n.Persistence.AOF != "no" }

func notDurable(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if d.p.guarded || n.keeps() {
		return "", ""
	}
	return "keeps no append-only file, and the restart guard is off: after a restart it grants keys that are held",
		"set appendonly yes and appendfsync always, or turn the guard on (WithRestartGuard) in all processes"
}

func notSynced(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.Persistence.AOF != "yes" {
		return "", ""
	}
	switch fsync := n.Persistence.Fsync; {
	case fsync == "no":
		return "appendfsync is no: a crash of its machine forgets half a minute of locks and records", "set appendfsync everysec, or always where the restart guard is off"
	case fsync == "everysec" && !d.p.guarded:
		return "appendfsync is everysec, and the restart guard is off: a crash of its machine forgets a second of locks", "set appendfsync always for locks that must survive that, or turn the guard on (WithRestartGuard) in all processes"
	}
	return "", ""
}

func recordsInMemory(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if !d.p.guarded || n.keeps() {
		return "", ""
	}
	return "keeps no append-only file: a restart forgets completion records; locks are guarded against that", "for cron ticks, queues and idempotent requests set appendonly yes"
}

func replicasUnguarded(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if d.p.guarded || n.Replication.Replicas <= 0 {
		return "", ""
	}
	return fmt.Sprintf("has replicas (%d), and the restart guard is off: one that is promoted grants keys that are held", n.Replication.Replicas),
		"set WithRestartGuard(true) and WithReplicaLag in all processes, unless nothing ever promotes one"
}

func noReplicaLag(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if !d.p.guarded || n.Replication.Replicas <= 0 || d.p.lag > 0 {
		return "", ""
	}
	return fmt.Sprintf("has replicas (%d), and there is no replica lag: when one is promoted, this server may go on confirming leases beside it", n.Replication.Replicas),
		"set WithReplicaLag to min-replicas-max-lag and a second more, in all processes, unless nothing ever promotes one"
}

func shortReplicaLag(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.Replication.Replicas <= 0 || d.p.lag == 0 || n.Replication.MinToWrite <= 0 || d.p.lag >= n.Replication.MinMaxLag+time.Second {
		return "", ""
	}
	return fmt.Sprintf("min-replicas-max-lag is %v, so without its replicas it may serve for longer than the replica lag of %v", n.Replication.MinMaxLag, d.p.lag),
		fmt.Sprintf("set WithReplicaLag to %v, in all processes", n.Replication.MinMaxLag+time.Second)
}

func servesWithoutReplicas(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.Replication.Replicas <= 0 || d.p.lag == 0 || n.Replication.MinToWrite != 0 {
		return "", ""
	}
	return "min-replicas-to-write is 0: cut off from its replicas it goes on serving, beside the one that is promoted",
		"set min-replicas-to-write 1, with two replicas for each primary"
}

func replicaBehind(_ *diagnosis, n *NodeDiagnosis) (what, mend string) {
	if n.Replication.Behind < 10*time.Second || n.Replication.MinMaxLag >= 0 && n.Replication.Behind < n.Replication.MinMaxLag {
		return "", ""
	}
	return fmt.Sprintf("has not heard of a replica for %v: what is promoted then has forgotten what came since", n.Replication.Behind), "look at the replica and at the network between them"
}

// lastReplica tells what is yet to come of a replica that has left.
func lastReplica(d *diagnosis, n *NodeDiagnosis) (what, mend string) {
	r := n.Replication
	if !d.p.guarded || r.Replicas != 0 || !r.Recorded || r.BacklogTTL == 0 {
		return "", ""
	}
	when := "repl-backlog-ttl"
	if r.BacklogTTL > 0 {
		when = r.BacklogTTL.String()
	}
	return fmt.Sprintf("had a replica, or a backup by redis-cli --rdb: %s after the last of them a new replication history starts, and then it does not vote for %v", when, d.outage()),
		"set repl-backlog-ttl 0, by which the history stays, and so do later replicas and backups change nothing"
}

// outage is for how long a node does not vote that begins a new history.
func (d *diagnosis) outage() time.Duration { return max(d.longest(), d.p.maxTTL) + d.p.lag }

// firstReplica tells, once, what no setting shows.
func firstReplica(d *diagnosis) (what, mend string) {
	if !d.p.guarded || !slices.ContainsFunc(d.Nodes, func(n NodeDiagnosis) bool {
		return n.Role == "master" && n.Replication.Replicas == 0 && !n.Replication.Recorded
	}) {
		return "", ""
	}
	return fmt.Sprintf("the first replica that is attached to a node, be it redis-cli --rdb for a backup, starts a new replication history, and then the node does not vote for %v", d.outage()),
		"attach replicas, and take backups, one node after the other; a copy of the file that BGSAVE writes changes nothing"
}
