package core

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A nodeState is what an attempt knows of one node, and what it owes the node. It is a state machine without I/O, lock or
// timer. Its owner does what a transition asks for.
type nodeState struct {
	expiry      wire.NodeTime // logical expiry last confirmed; 0 = never
	nodeClock   wire.NodeTime // the node's clock with it
	confirmedAt clock.Instant // when the request was sent that the node answered so

	// memory names what the node remembered when it last vouched for the attempt: when the attempt asked, when it was
	// granted, or when a renewal was confirmed that the lease could still trust. What the node forgets later may be the
	// grant of a later holder, so it accepts a completion only in that memory.
	memory string

	unanswered         int32 // requests sent that the node has not answered, and may never answer: they may still arrive
	unansweredReleases int32 // releases among them
	sentOther          bool  // something besides the acquisition was sent
	debt               releaseDebt
}

// A releaseDebt is what a node must still hear of the end of an attempt, besides the releases under way.
//
//	                 a release is confirmed   refused, or not answered   a late grant is heard of
//	nothingOwed      releaseDone              releaseAgain               a release comes after it
//	releaseLater     releaseDone              stays                      is told at once
//	releaseAgain     releaseDone              stays                      stays
//	releaseLast      releaseDone              releaseInVain              stays
//	releaseInVain    releaseDone              releaseAgain               releaseAgain, at once
//	releaseDone      stays                    stays                      stays
type releaseDebt uint8

const (
	nothingOwed      releaseDebt = iota
	releasePostponed             // the node is told that the attempt is over, unless it answers by then that it does not have it
	releaseRetryDue              // the node is told once more, because it has not confirmed the release
	releaseRetrying              // that is under way
	releaseFailed                // the node is not told any more
	releaseDone                  // the node has confirmed the release
)

// sent notes that a request is about to be sent.
func (s *nodeState) recordSent(op wire.Op) {
	s.sentOther = s.sentOther || op != wire.OpAcquire
	s.addUnanswered(op, 1)
}

// answered notes that a request was answered.
func (s *nodeState) recordAnswered(op wire.Op) { s.addUnanswered(op, -1) }

// await counts requests that are not answered: more or fewer of them.
func (s *nodeState) addUnanswered(op wire.Op, more int32) {
	s.unanswered += more
	if op == wire.OpRelease {
		s.unansweredReleases += more
	}
}

// arrived reports whether nothing of the attempt can arrive at the node any more if a release finds the lease there.
func (s *nodeState) hasArrived() bool { return s.unanswered == 0 || !s.sentOther }

// granted notes that the node granted the attempt. A grant that is heard of after a renewal says nothing new.
func (s *nodeState) recordGrant(got node.Reply) {
	if s.expiry == 0 {
		s.memory = got.Memory
	}
	s.recordConfirmation(got)
}

// confirm notes that the lease is on the node until the expiry that the node named. Replies may overtake each other.
func (s *nodeState) recordConfirmation(got node.Reply) {
	if got.Expiry >= s.expiry {
		s.expiry = got.Expiry
		s.nodeClock = got.Clock
		s.confirmedAt = got.Sent
	}
}

// confirms notes the reply to a renewal. It reports whether the node has the lease, and whether this machine's clock stood
// still since the confirmation before: then more time has passed on the node than can have passed here. Without a clock
// window nothing shows that.
func (s *nodeState) recordRenewal(got node.Reply, window time.Duration) (has, slept bool) {
	v := got.Verdict
	confirmed := v == wire.Granted || v == wire.Healed || v == wire.Passed
	if !confirmed {
		return false, false
	}
	canCompare := window > 0 && s.nodeClock != 0
	if canCompare {
		there, here := got.Clock.Since(s.nodeClock), got.Sent.Since(s.confirmedAt)+got.Latency
		slept = there-here > window
	}
	s.recordConfirmation(got)
	return true, slept
}

// lateGrant returns what the node is owed whose grant is heard of when the attempt is over, and reports whether the node is
// told now: if it was to be told later, or was told in vain.
func (s *nodeState) lateGrant() (debt releaseDebt, now bool) {
	if s.debt == releaseFailed {
		return releaseRetryDue, true
	}
	return s.debt, s.debt == releasePostponed
}

// released notes the reply to a release. It returns the verdict that the reply amounts to, and reports whether the node is
// told once more, because it refused to write the end down or has not answered.
//
// A refusal counts as a confirmation if an earlier release has ended the attempt, or may have.
func (s *nodeState) recordRelease(got node.Reply, cooldown bool) (v wire.Verdict, again bool) {
	v = got.Verdict
	isConfirmed := v == wire.Gone && s.mayHaveEnded(got, cooldown)
	if isConfirmed {
		v = wire.Granted
	}

	switch {
	case v == wire.Granted:
		s.debt = releaseDone
	case v == wire.Gone || v == wire.TooLate: // the attempt does not have the key there
	case s.debt == releaseRetrying:
		s.debt = releaseFailed
	default:
		again = s.debt == nothingOwed || s.debt == releaseFailed
	}
	return v, again
}

// endedBefore reports whether an earlier release has ended the attempt on a node that does not have it now, or may have, because
// its answer is missing: nobody can tell whether the key was taken before that release or since.
//
// A node that knows how the attempt ended leaves no doubt. And a cooldown is there, or it is not.
func (s *nodeState) mayHaveEnded(got node.Reply, cooldown bool) bool {
	switch {
	case got.Revoked:
		return false
	case s.debt == releaseDone:
		return true
	default:
		return s.unansweredReleases > 0 && !cooldown && !got.Refused
	}
}

// takeDue takes what is due at a node. It reports whether the node is told that the attempt is over, which it is if anything
// of the attempt may be there or may arrive, and whether that is the first time.
func (s *nodeState) takeDue() (isDue, isFirst bool) {
	isFirst = s.debt == releasePostponed
	mayHaveLease := s.unanswered > 0 || s.expiry != 0
	isDue = (isFirst || s.debt == releaseRetryDue) && mayHaveLease
	switch {
	case s.debt == releaseRetryDue && isDue:
		s.debt = releaseRetrying
	case s.debt == releaseRetryDue || isFirst:
		s.debt = nothingOwed
	}
	return isDue, isFirst
}
