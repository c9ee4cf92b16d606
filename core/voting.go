package core

import (
	"cmp"
	"time"
)

// A voting is what an operator knows of whether a node votes. A lost connection now and then is no news, and
// what changes all the time is told a few times a minute.
type voting struct {
	failed int           // requests in a row
	now    Verdict       // why the node does not vote; VerdictGranted = it votes
	told   Verdict       // as last logged
	since  time.Duration // beginning of the minute that lines are counted in
	lines  int
	hidden int // changes not logged since the last line
}

// maxLines is how many lines about whether it votes a node gets in a minute.
const maxLines = 4

// see books a verdict. proof: it comes from a script that only a node that votes grants.
func (s *voting) see(v Verdict, proof bool) {
	switch v {
	case VerdictFailed:
		s.failed++
		if s.failed < maxFailures {
			return
		}
	case VerdictQuarantined, VerdictClockSkewed, VerdictReplica, VerdictUnguarded:
		s.failed = 0
	default:
		s.failed = 0
		if !proof {
			return
		}
		v = VerdictGranted
	}
	if s.now != v {
		s.now = v
		s.hidden++
	}
}

// tell reports whether a line is due, and how many changes were left out before it.
func (s *voting) tell(at time.Duration) (due bool, hidden int) {
	if at-s.since >= time.Minute {
		s.since, s.lines = at, 0
	}
	if s.now == s.told || s.lines >= maxLines {
		return false, 0
	}
	hidden = s.hidden - 1
	s.told, s.hidden = s.now, 0
	s.lines++
	return true, hidden
}

// observeVote follows what a node answers: a node that was away at the start is examined at its first answer, and
// an operator is told when trouble with a node begins and ends.
func (e *ensemble) observeVote(n *node, v vote, r *round) {
	at := e.clock.now()
	n.mu.Lock()
	check := answered(v.err) && n.fault == nil && n.dueCheck(at, true)
	if answered(v.err) && r.asker != nil && r.script != releaseScript {
		n.askedAt[r.bucket] = at
	}
	if v.claim == "" { // Provision knows best whether a new node shall vote
		n.voting.see(v.verdict, r.script == acquireScript || r.script == touchScript)
	}
	due, hidden := n.voting.tell(at)
	now := n.voting.now
	later := now != n.voting.told
	n.mu.Unlock()
	if later {
		e.health.plan()
	}
	if check {
		e.spawn(func() { e.health.recheck(n) })
	}
	if due {
		r.p.tellVoting(n, now, hidden, v.details()...)
	}
}

// tellVoting logs that a node stopped or began to vote.
func (p *policy) tellVoting(n *node, now Verdict, hidden int, details ...any) {
	attrs := append([]any{n.attrs(), "verdict", now.String()}, details...)
	if hidden > 0 {
		attrs = append(attrs, "changes_not_logged", hidden)
	}
	if now == VerdictGranted {
		p.logger.Info("lockkit: node votes again", attrs...)
		return
	}
	p.logger.Warn("lockkit: node does not vote", attrs...)
}

// details are what a log line tells of a vote beside its verdict.
func (v *vote) details() (attrs []any) {
	switch {
	case v.err != nil:
		attrs = append(attrs, "err", cmp.Or(lasting(v.err), v.err)) // with how to mend it, where that is known
	case v.verdict == VerdictQuarantined:
		attrs = append(attrs, "rest", v.rest.Round(time.Millisecond), "why", "it is new, was restarted, or may have lost its memory: it votes by itself after rest")
	case v.verdict == VerdictClockSkewed:
		attrs = append(attrs, "skew", v.skew.Round(time.Millisecond), "why", "the clocks differ by more than the clock window: check NTP on both machines")
	}
	return attrs
}
