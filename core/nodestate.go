package core

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A nodeState is what an attempt knows of one node, and what it owes it: a state machine without I/O, lock or timer. Its owner
// does what a transition asks for.
type nodeState struct {
	expiry wire.NodeTime // logical expiry last confirmed; 0 = never
	clock  wire.NodeTime // the node's clock with it
	sent   clock.Instant // when the request was sent that it answered
	// memory names what the node remembered when it last vouched for the attempt: when the attempt asked, was
	// granted, or had a renewal confirmed that it could still trust. What the node forgets later may be the grant
	// of a later holder, so it accepts a completion only in that memory.
	memory     string
	unanswered int32 // requests sent that the node has not answered, and may never: they may still arrive
	ends       int32 // releases among them
	others     bool  // something but the acquisition was sent
	owed       owed
}

// An owed is what a node is still to hear of the end of an attempt, beside the releases under way.
//
//	              a release is confirmed   refused, or not answered   a late grant is heard of
//	owedNothing   owedNoMore               owedAgain                  a release comes after it
//	owedLater     owedNoMore               stays                      is told at once
//	owedAgain     owedNoMore               stays                      stays
//	owedLast      owedNoMore               owedInVain                 stays
//	owedInVain    owedNoMore               owedAgain                  owedAgain, at once
//	owedNoMore    stays                    stays                      stays
type owed uint8

const (
	owedNothing owed = iota
	owedLater        // it is told that the attempt is over, unless it answers by then that it does not have it
	owedAgain        // it is told once more: it has not confirmed it
	owedLast         // that is under way
	owedInVain       // it is told no more
	owedNoMore       // it has confirmed it
)

// sends notes that a request is about to be sent.
func (s *nodeState) sends(op wire.Op) {
	s.others = s.others || op != wire.OpAcquire
	s.await(op, 1)
}

// answers notes that a request was answered.
func (s *nodeState) answers(op wire.Op) { s.await(op, -1) }

// await counts requests that are not answered, more or less of them.
func (s *nodeState) await(op wire.Op, more int32) {
	s.unanswered += more
	if op == wire.OpRelease {
		s.ends += more
	}
}

// arrived reports whether, where the lease is found, nothing of the attempt can arrive there any more.
func (s *nodeState) arrived() bool { return s.unanswered == 0 || !s.others }

// granted notes that the node granted the attempt. Heard of after a renewal, it says nothing new.
func (s *nodeState) granted(got node.Reply) {
	if s.expiry == 0 {
		s.memory = got.Memory
	}
	s.confirm(got)
}

// confirm notes that the lease is on the node until the expiry it named. Replies may overtake each other.
func (s *nodeState) confirm(got node.Reply) {
	if got.Expiry >= s.expiry {
		s.expiry, s.clock, s.sent = got.Expiry, got.Clock, got.Sent
	}
}

// confirms notes what the node made of a renewal: whether it has the lease, and whether that shows that this machine's clock
// stood still since the confirmation before, because more time has passed on the node than can have passed here. Without a
// clock window nothing shows it.
func (s *nodeState) confirms(got node.Reply, window time.Duration) (has, slept bool) {
	if v := got.Verdict; v != wire.Granted && v != wire.Healed && v != wire.Passed {
		return false, false
	}
	if window > 0 && s.clock != 0 {
		there, here := got.Clock.Since(s.clock), got.Sent.Since(s.sent)+got.Latency
		slept = there-here > window
	}
	s.confirm(got)
	return true, slept
}

// late says what the node is owed of whose grant one hears when the attempt is over, and whether it is told now: what it was to
// be told later, or was told in vain.
func (s *nodeState) late() (what owed, now bool) {
	if s.owed == owedInVain {
		return owedAgain, true
	}
	return s.owed, s.owed == owedLater
}

// ended notes what the node made of being told that the attempt is over: the verdict that this amounts to, and whether the
// node is told once more, because it has refused to write it down, or has not answered. A refusal counts as a confirmation
// where a release before has ended the attempt, or may have, if its answer is missing: nobody can tell whether the key was
// taken before that or since. Not with a cooldown, which is there, or is not.
func (s *nodeState) ended(got node.Reply, cooldown bool) (v wire.Verdict, again bool) {
	v = got.Verdict
	if v == wire.Gone && !got.Revoked && (s.owed == owedNoMore || s.ends > 0 && !cooldown) {
		v = wire.Granted
	}
	switch {
	case v == wire.Granted:
		s.owed = owedNoMore
	case v == wire.Gone || v == wire.TooLate: // the attempt does not have the key there
	case s.owed == owedLast:
		s.owed = owedInVain
	default:
		again = s.owed == owedNothing || s.owed == owedInVain
	}
	return v, again
}

// due says what a node is told whose time has come: that the attempt is over, if anything of it may be there or arrive; first,
// where it was not told before.
func (s *nodeState) due() (tell, first bool) {
	first = s.owed == owedLater
	tell = (first || s.owed == owedAgain) && (s.unanswered > 0 || s.expiry != 0)
	switch {
	case s.owed == owedAgain && tell:
		s.owed = owedLast
	case s.owed == owedAgain || first:
		s.owed = owedNothing
	}
	return tell, first
}
