package otellock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

// A nodeState is what is known of a node.
type nodeState struct {
	heard  time.Time // when it last was, or when a request to it last failed
	votes  int64     // 1 if it votes, 0 if not
	known  bool      // whether it votes
	offset time.Duration
	timed  bool // its offset is known
}

// A member is a node as one Locker has it.
type member struct {
	locker uint64
	node
}

// forgetAfter is how long after other nodes a node was last heard of, until it counts as replaced: its Locker was closed, or
// is idle and does not touch nodes. A Locker with the restart guard touches its nodes each half minute at least.
const forgetAfter = time.Minute

// node is [core.Observer.Node].
func (o *observer) node(ctx context.Context, kind core.OpKind, r core.NodeReply) {
	n := node{r.Node, valid(r.Addr)}
	if r.Verdict != core.VerdictCircuitOpen && o.in.node.Enabled(ctx) { // else nothing was sent
		o.in.node.Record(ctx, r.Latency.Seconds(), o.series(reply{n, r.Verdict}))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	m := member{r.Locker, n}
	s := o.nodes[m]
	if s == nil {
		s = &nodeState{}
		o.nodes[m] = s
		o.sizes[r.Locker] = r.Of
	}
	s.heard = time.Now()
	if r.Err == nil && kind != core.OpRelease { // the reply to a release does not tell the time
		s.offset, s.timed = r.Skew, true
	}
	s.hear(kind, r.Verdict)
}

// hear notes whether a node votes, as its reply shows. A node that answers is believed to vote. One that refused or failed is
// so again once it gives an answer that it would not give in a quarantine: to an acquisition or a touch, or a renewal that is
// simply granted.
func (s *nodeState) hear(kind core.OpKind, v core.Verdict) {
	switch v {
	case core.VerdictFailed, core.VerdictTimedOut, core.VerdictCircuitOpen,
		core.VerdictQuarantined, core.VerdictClockSkewed, core.VerdictReplica, core.VerdictUnguarded:
		s.votes, s.known = 0, true
	case core.VerdictGranted, core.VerdictHeld, core.VerdictDone, core.VerdictGone, core.VerdictForgotten,
		core.VerdictHealed, core.VerdictPassed, core.VerdictUnconfirmed:
		proof := kind == core.OpAcquire || kind == core.OpTouch || kind == core.OpRenew && v == core.VerdictGranted
		if proof || !s.known {
			s.votes, s.known = 1, true
		}
	default: // pending, too late and the like say nothing of the node
	}
}

// current returns the nodes that count, and forgets those that were replaced.
func (o *observer) current() map[member]nodeState {
	o.mu.Lock()
	defer o.mu.Unlock()
	var last time.Time
	for _, s := range o.nodes {
		if s.heard.After(last) {
			last = s.heard
		}
	}
	nodes, left := map[member]nodeState{}, map[uint64]bool{}
	for m, s := range o.nodes {
		if last.Sub(s.heard) > forgetAfter {
			delete(o.nodes, m)
			continue
		}
		nodes[m], left[m.locker] = *s, true
	}
	for locker := range o.sizes {
		if !left[locker] {
			delete(o.sizes, locker)
		}
	}
	return nodes
}

// spare returns how many nodes may fail before the first of the Lockers cannot lock. Lockers with less than three nodes have
// none to spare by design, and do not count.
func (o *observer) spare(nodes map[member]nodeState) (spare int64, known bool) {
	voting := map[uint64]int64{}
	for m, s := range nodes {
		voting[m.locker] += s.votes
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for locker, votes := range voting {
		of := o.sizes[locker]
		if of < 3 {
			continue
		}
		if left := votes - int64(of/2+1); !known || left < spare {
			spare, known = left, true
		}
	}
	return spare, known
}

// registerNodes makes readers of metrics ask for what is known of nodes.
func (o *observer) registerNodes(m metric.Meter) error {
	_, err := m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		members := o.current()
		if spare, known := o.spare(members); known {
			to.ObserveInt64(o.in.spare, spare)
		}
		for n, s := range merged(members) {
			if s.known {
				to.ObserveInt64(o.in.voting, s.votes, o.series(n))
			}
			if s.timed {
				to.ObserveFloat64(o.in.offset, s.offset.Seconds(), o.series(n))
			}
		}
		return nil
	}, o.in.voting, o.in.offset, o.in.spare)
	return err
}

// merged returns what is known of each node, by the Locker that heard of it last.
func merged(members map[member]nodeState) map[node]nodeState {
	nodes := map[node]nodeState{}
	for m, s := range members {
		if was, known := nodes[m.node]; !known || s.heard.After(was.heard) {
			nodes[m.node] = s
		}
	}
	return nodes
}
