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
		v = wire.Granted
		s.proven = true
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
	if back {
		n.away = false
	}
	news := n.noteVerdict(&v, r.op)
	now := n.voting.now
	g.countDoubtful(n)
	n.mu.Unlock()

	if g.putsOffTouch(&v, r) {
		r.Bucket.asked.Store(g.Clock.Now())
	}
	if back {
		g.Tasks.Go(func() { g.check(n) })
	}
	if news {
		g.logVoting(n, now, &v)
	}
}

func (n *Node) noteVerdict(v *quorum.Vote, op wire.Op) (news bool) {
	counts := v.Claim == "" && !aboutKey(v.Err) // Provision knows best whether a new node shall vote
	if counts {
		news = n.voting.see(v.Verdict, proves(op, v.Verdict))
	}
	healed := v.Verdict == wire.Healed || v.Verdict == wire.Passed
	if op == wire.OpRenew && healed {
		n.voting.proven = false // it may be in quarantine
	}
	return news
}

func (g *Group) countDoubtful(n *Node) {
	doubtful := !n.voting.proven
	if doubtful == n.doubtful {
		return
	}
	n.doubtful = doubtful
	if doubtful {
		g.doubtful.Add(1)
	} else {
		g.doubtful.Add(-1)
	}
}

// A request puts off the touch of nodes if it asks for votes, or as long as all nodes have shown that they vote. A process
// that only renews would else not hear whether a node that was away votes again.
func (g *Group) putsOffTouch(v *quorum.Vote, r *Round) bool {
	if !goredis.Answered(v.Err) || r.asker == nil {
		return false
	}
	switch r.op {
	case wire.OpAcquire, wire.OpTouch:
		return true
	case wire.OpRelease:
		return false
	default:
		return g.doubtful.Load() == 0
	}
}

func (g *Group) logVoting(n *Node, now wire.Verdict, v *quorum.Vote) {
	if now == wire.Granted {
		g.Callbacks.Post(&n.lines, func() { g.Conf.Logger.Info("lockkit: node votes again", n.attrs()) })
		return
	}
	why := v.Why()
	g.Callbacks.Post(&n.lines, func() {
		g.Conf.Logger.Warn("lockkit: node does not vote", n.attrs(), "verdict", now.String(), "why", why)
	})
}

// aboutKey reports whether a request failed because of what the node stores for its key: for all other keys the node votes.
func aboutKey(err error) bool {
	return err != nil && (goredis.Says(err, "WRONGTYPE") || strings.Contains(err.Error(), "LAYOUT the key"))
}
