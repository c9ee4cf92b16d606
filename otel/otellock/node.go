package otellock

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

// A nodeState is the last known state of a node.
type nodeState struct {
	lastReport     time.Time // the last time that core reported a reply, a failure or an open circuit
	votes          int64     // 1 if the node votes, 0 if it does not
	hasVotes       bool      // votes is known
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

	// With an open circuit no request was sent, so there is no duration.
	if r.Verdict != core.VerdictCircuitOpen && o.instruments.nodeDuration.Enabled(ctx) {
		o.instruments.nodeDuration.Record(ctx, r.Latency.Seconds(), o.series(replyLabels{labels, r.Verdict}))
	}

	o.mu.Lock()
	defer o.mu.Unlock()

	id := lockerNode{r.Locker, labels}
	s := o.nodes[id]
	if s == nil {
		s = &nodeState{}
		o.nodes[id] = s
		o.lockerSizes[r.Locker] = r.Of
	}

	s.lastReport = time.Now()
	if r.Err == nil && kind != core.OpRelease { // the reply to a release has no time
		s.clockOffset, s.hasClockOffset = r.Skew, true
	}
	s.setVotes(kind, r.Verdict)
}

// setVotes updates votes from the verdict of a reply. The first answer of a node counts as a vote. After a refusal or a
// failure, only an answer that the node would not give in a quarantine does: an answer to an acquisition or a touch, or
// the plain grant of a renewal.
func (s *nodeState) setVotes(kind core.OpKind, v core.Verdict) {
	switch v {
	case core.VerdictFailed, core.VerdictTimedOut, core.VerdictCircuitOpen,
		core.VerdictQuarantined, core.VerdictClockSkewed, core.VerdictReplica, core.VerdictUnguarded:
		s.votes, s.hasVotes = 0, true
	case core.VerdictGranted, core.VerdictHeld, core.VerdictDone, core.VerdictGone, core.VerdictForgotten,
		core.VerdictHealed, core.VerdictPassed, core.VerdictUnconfirmed:
		provesVote := kind == core.OpAcquire || kind == core.OpTouch || kind == core.OpRenew && v == core.VerdictGranted
		if provesVote || !s.hasVotes {
			s.votes, s.hasVotes = 1, true
		}
	default: // a pending or late request, for example, shows nothing about the node
	}
}

// currentNodes deletes the nodes that were replaced, and returns the state of the others.
func (o *observer) currentNodes() map[lockerNode]nodeState {
	o.mu.Lock()
	defer o.mu.Unlock()

	var latest time.Time
	for _, s := range o.nodes {
		if s.lastReport.After(latest) {
			latest = s.lastReport
		}
	}

	nodes, hasNodes := map[lockerNode]nodeState{}, map[uint64]bool{}
	for id, s := range o.nodes {
		if latest.Sub(s.lastReport) > forgetAfter {
			delete(o.nodes, id)
			continue
		}
		nodes[id], hasNodes[id.locker] = *s, true
	}

	for locker := range o.lockerSizes {
		if !hasNodes[locker] {
			delete(o.lockerSizes, locker)
		}
	}
	return nodes
}

// spare returns the smallest number of nodes, over all Lockers, that may fail before the Locker cannot lock.
// Lockers with fewer than three nodes are ignored: by design they have no spare node. known is false if no Locker is
// left.
func (o *observer) spare(nodes map[lockerNode]nodeState) (spare int64, known bool) {
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
		if beyondQuorum := votes - int64(size/2+1); !known || beyondQuorum < spare {
			spare, known = beyondQuorum, true
		}
	}
	return spare, known
}

// registerNodes makes readers of metrics collect the state of the nodes.
func (o *observer) registerNodes(meter metric.Meter) error {
	_, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		nodes := o.currentNodes()
		if spare, known := o.spare(nodes); known {
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
	}, o.instruments.nodeVoting, o.instruments.nodeClockOffset, o.instruments.nodesSpare)
	return err
}

// latestStates returns the state of each node. If several Lockers have the node, the state with the latest report wins.
func latestStates(nodes map[lockerNode]nodeState) map[nodeLabels]nodeState {
	latest := map[nodeLabels]nodeState{}
	for id, s := range nodes {
		if other, known := latest[id.nodeLabels]; !known || s.lastReport.After(other.lastReport) {
			latest[id.nodeLabels] = s
		}
	}
	return latest
}
