package node

import (
	"strings"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A voting is what the log has said of whether a node votes. Each change is logged once, with the reason. A connection that is
// lost now and then is no change.
type voting struct {
	failures int          // in a row
	now      wire.Verdict // why the node does not vote, as logged; Granted = it votes
	proven   bool         // the last answer that told, told that it votes
}

// proves reports whether only a node that votes answers a request so. A renewal that it does not simply grant (it was
// brought back, or its token was passed) may be granted in a quarantine, too.
func proves(op wire.Op, v wire.Verdict) bool {
	return op == wire.OpAcquire || op == wire.OpTouch || op == wire.OpRenew && v == wire.Granted
}

// see notes a verdict, and reports whether it is news. proof: only a node that votes answers so to this script.
func (s *voting) see(v wire.Verdict, proof bool) (news bool) {
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
		v, s.proven = wire.Granted, true
	}
	news = s.now != v
	s.now = v
	return news
}

// observeVote follows what a node answers: a node that was away at the start is examined at its first answer, and
// an operator is told when trouble with a node begins and ends.
func (g *Group) observeVote(n *Node, v quorum.Vote, r *Round) {
	r.track(n, &v)
	n.mu.Lock()
	back := n.away && goredis.Answered(v.Err)
	n.away = n.away && !back
	counts := v.Claim == "" && !aboutKey(v.Err) // Provision knows best whether a new node shall vote
	news := counts && n.voting.see(v.Verdict, proves(r.op, v.Verdict))
	now := n.voting.now
	if r.op == wire.OpRenew && (v.Verdict == wire.Healed || v.Verdict == wire.Passed) {
		n.voting.proven = false // it may be in quarantine
	}
	if doubtful := !n.voting.proven; doubtful != n.doubtful {
		n.doubtful = doubtful
		g.doubtful.Add(map[bool]int32{true: 1, false: -1}[doubtful])
	}
	n.mu.Unlock()

	// A request puts off the touch of nodes if it asks for votes, or as long as all nodes have shown that they vote. A process
	// that only renews would else not hear whether a node that was away votes again.
	shows := r.op == wire.OpAcquire || r.op == wire.OpTouch || g.doubtful.Load() == 0
	if goredis.Answered(v.Err) && r.asker != nil && r.op != wire.OpRelease && shows {
		r.Bucket.asked.Store(g.Clock.Now())
	}
	if back {
		g.Tasks.Go(func() { g.check(n) })
	}
	switch {
	case !news:
	case now == wire.Granted:
		g.Callbacks.Post(&n.lines, func() { g.Conf.Logger.Info("lockkit: node votes again", n.attrs()) })
	default:
		why := v.Why()
		g.Callbacks.Post(&n.lines, func() {
			g.Conf.Logger.Warn("lockkit: node does not vote", n.attrs(), "verdict", now.String(), "why", why)
		})
	}
}

// aboutKey reports whether a request failed because of what the node stores for its key: for all other keys the node votes.
func aboutKey(err error) bool {
	return err != nil && (goredis.Says(err, "WRONGTYPE") || strings.Contains(err.Error(), "LAYOUT the key"))
}
