package core

import (
	"cmp"
	"strings"
	"time"
)

// A voting is what an operator knows of whether a node votes. Each change is logged once, with the reason; a lost
// connection now and then is none.
type voting struct {
	failed int     // requests in a row
	now    Verdict // why the node does not vote, as logged; VerdictGranted = it votes
}

// see books a verdict, and reports whether it is news. proof: it comes from a script that only a node that votes grants.
func (s *voting) see(v Verdict, proof bool) (news bool) {
	switch v {
	case VerdictFailed:
		s.failed++
		if s.failed < maxFailures {
			return false
		}
	case VerdictQuarantined, VerdictClockSkewed, VerdictReplica, VerdictUnguarded:
		s.failed = 0
	default:
		s.failed = 0
		if !proof {
			return false
		}
		v = VerdictGranted
	}
	news = s.now != v
	s.now = v
	return news
}

// observeVote follows what a node answers: a node that was away at the start is examined at its first answer, and
// an operator is told when trouble with a node begins and ends.
func (e *ensemble) observeVote(n *node, v vote, r *round) {
	at := e.clock.now()
	news := false
	n.mu.Lock()
	check := answered(v.err) && n.fault == nil && n.dueCheck(at, true)
	if answered(v.err) && r.asker != nil && r.script != releaseScript {
		n.askedAt[r.bucket] = at
	}
	if v.claim == "" && !aboutKey(v.err) { // Provision knows best whether a new node shall vote
		news = n.voting.see(v.verdict, r.script == acquireScript || r.script == touchScript)
	}
	now := n.voting.now
	n.mu.Unlock()
	if check {
		e.spawn(func() { e.health.recheck(n) })
	}
	if news {
		r.p.tellVoting(n, now, v.details()...)
	}
}

// aboutKey reports whether a request failed because of what the node stores for its key: for all other keys the node votes.
func aboutKey(err error) bool {
	return err != nil && (says(err, "WRONGTYPE") || strings.Contains(err.Error(), "LAYOUT the key"))
}

// tellVoting logs that a node stopped or began to vote.
func (p *policy) tellVoting(n *node, now Verdict, details ...any) {
	attrs := append([]any{n.attrs(), "verdict", now.String()}, details...)
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
