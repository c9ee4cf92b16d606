package node

import (
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A voting is what an operator knows of whether a node votes. Each change is logged once, with the reason; a lost
// connection now and then is none.
type voting struct {
	failed int          // requests in a row
	now    wire.Verdict // why the node does not vote, as logged; VerdictGranted = it votes
}

// see books a verdict, and reports whether it is news. proof: it comes from a script that only a node that votes grants.
func (s *voting) see(v wire.Verdict, proof bool) (news bool) {
	switch v {
	case wire.Failed:
		s.failed++
		if s.failed < MaxFailures {
			return false
		}
	case wire.Quarantined, wire.ClockSkewed, wire.Replica, wire.Unguarded:
		s.failed = 0
	default:
		s.failed = 0
		if !proof {
			return false
		}
		v = wire.Granted
	}
	news = s.now != v
	s.now = v
	return news
}

// observeVote follows what a node answers: a node that was away at the start is examined at its first answer, and
// an operator is told when trouble with a node begins and ends.
func (g *Group) observeVote(n *Node, v quorum.Vote, r *Round) {
	if goredis.Answered(v.Err) && r.asker != nil && r.op != wire.OpRelease {
		g.Health.asked[r.bucket].Store(g.Clock.Now())
	}
	news := false
	n.mu.Lock()
	back := n.away && goredis.Answered(v.Err)
	n.away = n.away && !back
	if v.Claim == "" && !aboutKey(v.Err) { // Provision knows best whether a new node shall vote
		news = n.voting.see(v.Verdict, r.op == wire.OpAcquire || r.op == wire.OpTouch)
	}
	now := n.voting.now
	n.mu.Unlock()
	if back {
		g.Go(func() { g.Health.check(n) })
	}
	switch {
	case !news:
	case now == wire.Granted:
		g.Conf.Logger.Info("lockkit: node votes again", n.attrs())
	default:
		g.Conf.Logger.Warn("lockkit: node does not vote", n.attrs(), "verdict", now.String(), "why", v.Why())
	}
}

// aboutKey reports whether a request failed because of what the node stores for its key: for all other keys the node votes.
func aboutKey(err error) bool {
	return err != nil && (goredis.Says(err, "WRONGTYPE") || strings.Contains(err.Error(), "LAYOUT the key"))
}

// A clockFilter estimates by how much the wall clock of a node is ahead, from what its replies show. A reply
// that was long under way says little, so the quickest of the last few counts, as in NTP (RFC 5905, section 10).
type clockFilter struct {
	samples [8]clockSample
	next    int
}

// clockSlack is by how much clocks may drift apart between samples, and their readings be off.
const clockSlack = 5 * time.Millisecond

type clockSample struct {
	taken   bool
	ahead   time.Duration // the node's clock less this process's in the middle between request and answer,
	latency time.Duration // and how long that was
}

// add forgets what was seen before one of the clocks was set: it differs from now by more than the ways of the replies explain.
func (f *clockFilter) add(s clockSample) {
	if b := f.best(); (s.ahead - b.ahead).Abs() > (s.latency+b.latency)/2+clockSlack {
		*f = clockFilter{}
	}
	f.samples[f.next] = s
	f.next = (f.next + 1) % len(f.samples)
}

func (f *clockFilter) best() (best clockSample) {
	for _, s := range f.samples {
		if s.taken && (!best.taken || s.latency < best.latency) {
			best = s
		}
	}
	return best
}

// HeardClock books by how much the node's wall clock was ahead when the answer came.
func (n *Node) HeardClock(ahead, latency time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock.add(clockSample{true, ahead + latency/2, latency})
}

// Ahead is by how much the node's wall clock is ahead of this process's.
func (n *Node) Ahead() (by time.Duration, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	best := n.clock.best()
	return best.ahead, best.taken
}
