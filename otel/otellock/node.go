package otellock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

// A nodeState is the last known state of a node.
type nodeState struct {
	lastReport time.Time // the last time that core reported a reply, a failure or an open circuit

	votes    int64 // 1 if the node votes, 0 if it does not
	hasVotes bool  // votes is known

	clockOffset    time.Duration
	hasClockOffset bool // clockOffset is known
}

// A lockerNode identifies a node of one Locker.
type lockerNode struct {
	locker uint64
	nodeLabels
}

// A node is forgotten if its last report is older than the last report on any node by more than forgetAfter. Such a
// node counts as replaced: its Locker is closed, or is idle and does not touch its nodes. A Locker with the restart
// guard touches its nodes at least every 30 seconds.
const forgetAfter = time.Minute

// node implements [core.Observer.Node].
func (o *observer) node(ctx context.Context, kind core.OpKind, r core.NodeReply) {
	labels := nodeLabels{r.Node, valid(r.Addr)}

	wasSent := r.Verdict != core.VerdictCircuitOpen
	if wasSent && o.instruments.nodeDuration.Enabled(ctx) {
		o.instruments.nodeDuration.Record(ctx, r.Latency.Seconds(), o.series(replyLabels{labels, r.Verdict}))
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	id := lockerNode{r.LockerID, labels}
	s := o.nodes[id]
	if s == nil {
		s = &nodeState{}
		o.nodes[id] = s
		o.lockerSizes[r.LockerID] = r.Of
	}

	s.lastReport = time.Now()
	hasClock := r.Err == nil && kind != core.OpRelease // the reply to a release does not carry the node's time
	if hasClock {
		s.clockOffset = r.Skew
		s.hasClockOffset = true
	}
	s.updateVotes(kind, r.Verdict)
}

// updateVotes updates votes from the verdict of a reply. The first answer of a node counts as a vote. After a refusal
// or a failure, only an answer that the node would not give in a quarantine does: an answer to an acquisition or a
// touch, or the plain grant of a renewal.
func (s *nodeState) updateVotes(kind core.OpKind, v core.Verdict) {
	switch v {
	case core.VerdictFailed, core.VerdictTimedOut, core.VerdictCircuitOpen,
		core.VerdictQuarantined, core.VerdictClockSkewed, core.VerdictReplica, core.VerdictUnguarded:
		s.setVotes(0)
	case core.VerdictGranted, core.VerdictHeld, core.VerdictDone, core.VerdictGone, core.VerdictForgotten,
		core.VerdictHealed, core.VerdictPassed, core.VerdictUnconfirmed:
		if !s.hasVotes || provesVote(kind, v) {
			s.setVotes(1)
		}
	default: // a pending or late request, for example, shows nothing about the node
	}
}

func (s *nodeState) setVotes(votes int64) {
	s.votes = votes
	s.hasVotes = true
}

// provesVote reports whether a node in quarantine would not have given this answer.
func provesVote(kind core.OpKind, v core.Verdict) bool {
	switch kind {
	case core.OpAcquire, core.OpTouch:
		return true
	case core.OpRenew:
		return v == core.VerdictGranted
	default:
		return false
	}
}

// currentNodes forgets the nodes that were replaced, and returns the states of the others.
func (o *observer) currentNodes() map[lockerNode]nodeState {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.forgetReplacedNodes()

	nodes := map[lockerNode]nodeState{}
	for id, s := range o.nodes {
		nodes[id] = *s
	}
	return nodes
}

// forgetReplacedNodes deletes the nodes that were replaced, and the Lockers that have no node left. o.mu must be held.
func (o *observer) forgetReplacedNodes() {
	var latest time.Time
	for _, s := range o.nodes {
		if s.lastReport.After(latest) {
			latest = s.lastReport
		}
	}

	hasNodes := map[uint64]bool{}
	for id, s := range o.nodes {
		if latest.Sub(s.lastReport) > forgetAfter {
			delete(o.nodes, id)
		} else {
			hasNodes[id.locker] = true
		}
	}

	for locker := range o.lockerSizes {
		if !hasNodes[locker] {
			delete(o.lockerSizes, locker)
		}
	}
}

// spareNodes returns the smallest number of nodes, over all Lockers, that may fail before the Locker cannot lock; it is
// negative if a Locker cannot lock now. Lockers with fewer than three nodes are ignored: by design they have no spare
// node. known is false if no Locker is left.
func (o *observer) spareNodes(nodes map[lockerNode]nodeState) (spare int64, known bool) {
	votesOf := map[uint64]int64{}
	for id, s := range nodes {
		votesOf[id.locker] += s.votes
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	for locker, votes := range votesOf {
		size := o.lockerSizes[locker]
		if size < 3 {
			continue
		}
		quorum := int64(size/2 + 1)
		if !known || votes-quorum < spare {
			spare = votes - quorum
			known = true
		}
	}
	return spare, known
}

// registerNodes makes readers of metrics collect the state of the nodes.
func (o *observer) registerNodes(meter metric.Meter) error {
	observe := func(_ context.Context, to metric.Observer) error {
		nodes := o.currentNodes()

		if spare, known := o.spareNodes(nodes); known {
			to.ObserveInt64(o.instruments.nodesSpare, spare)
		}

		for labels, s := range latestStates(nodes) {
			if s.hasVotes {
				to.ObserveInt64(o.instruments.nodeVoting, s.votes, o.series(labels))
			}
			if s.hasClockOffset {
				to.ObserveFloat64(o.instruments.nodeClockOffset, s.clockOffset.Seconds(), o.series(labels))
			}
		}
		return nil
	}
	_, err := meter.RegisterCallback(observe,
		o.instruments.nodeVoting, o.instruments.nodeClockOffset, o.instruments.nodesSpare)
	return err
}

// latestStates returns the state of each node. If several Lockers have the node, the state with the latest report wins.
func latestStates(nodes map[lockerNode]nodeState) map[nodeLabels]nodeState {
	latest := map[nodeLabels]nodeState{}
	for id, s := range nodes {
		other, isKnown := latest[id.nodeLabels]
		if !isKnown || s.lastReport.After(other.lastReport) {
			latest[id.nodeLabels] = s
		}
	}
	return latest
}
