package core

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"

	"github.com/lockkit/lockkit/core/internal/quorum"
)

// A diagnosis is a Diagnosis that is being made: what the servers told is held against the rules below.
type diagnosis struct {
	Diagnosis
	p       *policy
	servers []*examination
}

func (d *diagnosis) judge() {
	var fit []*examination
	for _, x := range d.servers {
		if !x.outside() && !d.listedTwice(x) {
			fit = append(fit, x)
		}
	}
	d.clocks(fit)
	for _, x := range fit {
		x.lacksRights()
		x.refusesWrites()
		x.guarded(d.inUse())
		x.forgets()
	}
	if !d.notProvisioned() {
		d.noQuorum()
	}
}

// listedTwice finds the server among those before it.
func (d *diagnosis) listedTwice(x *examination) bool {
	i := slices.IndexFunc(d.servers, func(other *examination) bool {
		return other == x || x.info["run_id"] != "" && other.info["run_id"] == x.info["run_id"]
	})
	first := d.servers[i]
	if first != x {
		x.add(SeverityFault, CodeSameServer, fmt.Sprintf("is the same server as %s, which would have two votes", nodeName(first.Node, first.Addr)),
			"list each server once, under one address")
	}
	return first != x
}

func (x *examination) refusesWrites() {
	if x.refusal != nil {
		x.add(SeverityFault, CodeWritesRefused, "takes no writes: "+x.refusal.Error(), cmp.Or(goredis.TroubleOf(x.refusal).Mend, "look at the server's log"))
	}
}

// clocks finds those that are off for certain, given how long their answers took. Where most are, and to the same side, it
// is this machine's.
func (d *diagnosis) clocks(fit []*examination) {
	var off []*examination
	known, ahead := 0, 0
	for _, x := range fit {
		if x.clocked {
			known++
		}
		if x.clocked && d.p.window > 0 && x.offset.Abs()-x.exact > d.p.window {
			off = append(off, x)
			if x.offset > 0 {
				ahead++
			}
		}
	}
	if known > 2 && 2*max(ahead, len(off)-ahead) > known {
		d.Findings = append(d.Findings, Finding{SeverityFault, CodeClockOff, fmt.Sprintf("the clock of this machine differs from those of most nodes by more than the clock window of %v: they do not vote for it", d.p.window),
			"mend NTP on this machine"})
		return
	}
	for _, x := range off {
		x.add(SeverityFault, CodeClockOff, fmt.Sprintf("its clock is off by %v, more than the clock window of %v: it does not vote", x.offset.Round(time.Millisecond), d.p.window),
			"mend NTP on its machine, and do not widen the window")
	}
}

// inUse reports whether any node has a guard record.
func (d *diagnosis) inUse() bool {
	return slices.ContainsFunc(d.servers, func(x *examination) bool {
		return x.guard.State != wire.GuardUnknown && x.guard.State != wire.GuardMissing && !x.guard.Fresh
	})
}

func inRound(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// guarded says why a node does not vote that may have forgotten leases. inUse: another has a guard record.
func (x *examination) guarded(inUse bool) {
	left := inRound(x.guard.Left)
	switch {
	case x.guard.State == wire.GuardMissing && inUse:
		x.add(SeverityWarning, CodeQuarantined, "has no guard record, beside nodes that have one: it has lost its memory (flushed, restarted without its data), or is new",
			fmt.Sprintf("nothing, it votes by itself %s after it is next asked; find out what emptied it, and empty no other node before then", left))
	case x.guard.State == wire.GuardChanged:
		x.add(SeverityWarning, CodeQuarantined, "its guard record is of another replication history: it was restarted or promoted, or its first replica was attached (as redis-cli --rdb does, too)",
			fmt.Sprintf("nothing, it votes by itself %s after it is next asked; restart, attach or back up one node at a time", left))
	case x.guard.State == wire.GuardQuarantined && (inUse || !x.guard.Fresh):
		x.add(SeverityWarning, CodeQuarantined, "is quarantined, because it is new, was restarted, or may have forgotten locks: it does not vote",
			fmt.Sprintf("nothing, it votes by itself in %s; restart no other node before", left))
	}
}

// notProvisioned finds nodes that are all new.
func (d *diagnosis) notProvisioned() bool {
	left := time.Duration(-1)
	for _, x := range d.servers {
		if x.guard.State != wire.GuardUnknown {
			left = max(left, x.guard.Left)
		}
	}
	if left < 0 || d.inUse() {
		return false
	}
	d.Findings = append(d.Findings, Finding{SeverityWarning, CodeNotProvisioned, "no node that was reached has a guard record: they are new, or all have lost their memory",
		fmt.Sprintf("if they are new, declare them so (lockctl provision, or Locker.Provision); otherwise they vote by themselves %s after they are first asked", inRound(left))})
	return true
}

// forgets says what a restart or a failover of the server would forget that nothing guards against.
func (x *examination) forgets() {
	if x.info["aof_enabled"] == "0" && !x.p.guarded {
		x.add(SeverityRisk, CodeNotDurable, "keeps no append-only file, and the restart guard is off: after a restart it grants keys that are held",
			"set appendonly yes and appendfsync always, or turn the guard on (WithRestartGuard) in all processes")
	}
	replicas, _ := strconv.Atoi(x.info["connected_slaves"])
	_, stops := x.info["min_slaves_good_slaves"] // of a primary that stops without its replicas, INFO tells how many are good
	switch {
	case replicas == 0:
	case !x.p.guarded:
		x.add(SeverityRisk, CodeUnguarded, fmt.Sprintf("has replicas (%d), and the restart guard is off: one that is promoted grants keys that are held", replicas),
			"set WithRestartGuard(true) and WithReplicaLag in all processes, unless nothing ever promotes one")
	case x.p.lag == 0:
		x.add(SeverityRisk, CodeReplicaLag, fmt.Sprintf("has replicas (%d), and there is no replica lag: when one is promoted, this server may go on confirming leases beside it", replicas),
			"set WithReplicaLag to min-replicas-max-lag and a second more, in all processes, unless nothing ever promotes one")
	case !stops:
		x.add(SeverityRisk, CodeReplicaLag, "min-replicas-to-write or min-replicas-max-lag is 0: cut off from its replicas it goes on serving, beside the one that is promoted",
			"set min-replicas-to-write 1 and min-replicas-max-lag 2, with two replicas for each primary")
	case x.maxLag >= 0 && x.p.lag < x.maxLag+time.Second:
		x.add(SeverityRisk, CodeReplicaLag, fmt.Sprintf("min-replicas-max-lag is %v, so without its replicas it may serve for longer than the replica lag of %v", x.maxLag, x.p.lag),
			fmt.Sprintf("set WithReplicaLag to %v, in all processes", x.maxLag+time.Second))
	}
}

// noQuorum counts the nodes that would vote. What is wrong with a single node says it all.
func (d *diagnosis) noQuorum() {
	out := map[int]bool{}
	for _, x := range d.servers {
		if slices.ContainsFunc(x.Findings, func(f Finding) bool { return f.Severity == SeverityFault || f.Code == CodeQuarantined }) {
			out[x.Node] = true
		}
	}
	if votes := d.p.nodes - len(out); d.p.nodes > 1 && votes < quorum.Of(d.p.nodes) {
		d.Findings = append(d.Findings, Finding{SeverityFault, CodeNoQuorum, fmt.Sprintf("%d of %d nodes would vote, too few to grant a key", votes, d.p.nodes), "mend what is said of each of the others"})
	}
}
