package node

import (
	"strings"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A voting records whether a node votes, as logged. Each change is logged once, with the reason. A connection that
// is lost now and then is not a change. The node's mutex guards it.
type voting struct {
	failures int          // in a row
	logged   wire.Verdict // the logged reason why the node does not vote; Granted if it votes
	proven   bool         // the last conclusive answer showed that the node votes
}

// provesVoting reports whether only a node that votes gives this verdict. A renewal that is not plainly granted
// (the lease was brought back, or its token was passed) may be granted in a quarantine, too.
func provesVoting(op wire.Op, v wire.Verdict) bool {
	return op == wire.OpAcquire || op == wire.OpTouch || op == wire.OpRenew && v == wire.Granted
}

// add records a verdict, and reports whether the change must be logged. proof is set if only a node that votes
// gives this verdict to the script.
func (s *voting) add(v wire.Verdict, proof bool) (changed bool) {
	switch v {
	case wire.Failed:
		s.proven = false
		s.failures++
		if s.failures < MaxFailures {
			return false
		}
	case wire.Quarantined, wire.ClockSkewed, wire.Replica, wire.Unguarded:
		s.proven = false
		s.failures = 0
	default:
		s.failures = 0
		if !proof {
			return false
		}
		v = wire.Granted
		s.proven = true
	}

	changed = s.logged != v
	s.logged = v
	return changed
}

// observeVote updates the state of a node after its vote. A node that was away at the start is examined at its first
// answer. The log shows when a node stops voting and when it votes again.
func (g *Group) observeVote(n *Node, v quorum.Vote, r *Round) {
	r.track(n, &v)

	n.mu.Lock()
	isBack := n.checkOnAnswer && goredis.Answered(v.Err)
	if isBack {
		n.checkOnAnswer = false
	}
	changed := n.recordVerdict(&v, r.op)
	logged := n.voting.logged
	g.countDoubtful(n)
	n.mu.Unlock()

	if g.postponesTouch(&v, r) {
		r.Bucket.lastVoteRequest.Store(g.Clock.Now())
	}
	if isBack {
		g.Tasks.Go(func() { g.check(n) })
	}
	if changed {
		g.logVoting(n, logged, &v)
	}
}

// recordVerdict updates the node's voting, and reports whether the change must be logged. n.mu must be held.
func (n *Node) recordVerdict(v *quorum.Vote, op wire.Op) (changed bool) {
	// Whether a new node votes is up to Provision, so a claim says nothing.
	counts := v.Claim == "" && !isAboutKey(v.Err)
	if counts {
		changed = n.voting.add(v.Verdict, provesVoting(op, v.Verdict))
	}

	// The node may be in quarantine.
	healed := v.Verdict == wire.Healed || v.Verdict == wire.Passed
	if op == wire.OpRenew && healed {
		n.voting.proven = false
	}
	return changed
}

// countDoubtful updates the number of nodes that may not be voting. n.mu must be held.
func (g *Group) countDoubtful(n *Node) {
	doubtful := !n.voting.proven
	if doubtful == n.countedDoubtful {
		return
	}

	n.countedDoubtful = doubtful
	if doubtful {
		g.doubtfulNodes.Add(1)
	} else {
		g.doubtfulNodes.Add(-1)
	}
}

// postponesTouch reports whether an answer spares the nodes of the bucket the next touch. A request for votes does.
// Any other request except a release does only while all nodes have shown that they vote: otherwise a process that
// only renews would not notice that a node votes again.
func (g *Group) postponesTouch(v *quorum.Vote, r *Round) bool {
	if !goredis.Answered(v.Err) || r.asker == nil {
		return false
	}

	switch r.op {
	case wire.OpAcquire, wire.OpTouch:
		return true
	case wire.OpRelease:
		return false
	default:
		return g.doubtfulNodes.Load() == 0
	}
}

func (g *Group) logVoting(n *Node, logged wire.Verdict, v *quorum.Vote) {
	if logged == wire.Granted {
		g.Callbacks.Post(&n.logCalls, func() {
			g.Conf.Logger.Info("lockkit: node votes again", n.logAttrs())
		})
		return
	}

	why := v.Explain()
	g.Callbacks.Post(&n.logCalls, func() {
		g.Conf.Logger.Warn("lockkit: node does not vote", n.logAttrs(), "verdict", logged.String(), "why", why)
	})
}

// isAboutKey reports whether a request failed because of the data that the node stores for its key. For all other
// keys the node votes.
func isAboutKey(err error) bool {
	return err != nil && (goredis.HasReplyPrefix(err, "WRONGTYPE") || strings.Contains(err.Error(), "LAYOUT the key"))
}
