package core

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A nodeState is the state of one node as an attempt knows it, with the releases that the attempt owes the node. It
// is a state machine without I/O, lock or timer. The attempt does the work that a transition asks for, and its lock
// guards it.
type nodeState struct {
	expiry      wire.NodeTime // logical expiry of the last confirmation; 0 = none
	nodeClock   wire.NodeTime // the node's clock at that confirmation
	confirmedAt clock.Instant // when the request of that confirmation was sent

	// memory is the node's memory when it last vouched for the attempt: when the attempt asked, when the node granted
	// the key, or when it confirmed a renewal and the lease could still be trusted. If the node loses its memory
	// later, it may forget the grant of a later holder, so it accepts a completion only in this memory.
	memory string

	unanswered         int32 // requests that the node has not answered, and may never answer: they may still arrive
	unansweredReleases int32 // the releases among them
	sentOther          bool  // a request other than the acquisition was sent
	debt               releaseDebt
}

// A releaseDebt is the release that a node must still be sent, besides those in flight.
//
//	                  release confirmed   failed, or not answered    late grant
//	nothingOwed       releaseDone         releaseRetryDue            stays: a release follows it
//	releasePostponed  releaseDone         stays                      stays; the release is sent at once
//	releaseRetryDue   releaseDone         stays                      stays
//	releaseRetrying   releaseDone         releaseFailed              stays
//	releaseFailed     releaseDone         releaseRetryDue            releaseRetryDue; the release is sent at once
//	releaseDone       stays               stays                      stays
//
// An answer that the node does not have the lease counts as a confirmation if an earlier release may have ended the attempt
// there. Otherwise it changes nothing.
type releaseDebt uint8

const (
	nothingOwed      releaseDebt = iota
	releasePostponed             // a release is sent later, unless the node answers by then that it did not grant the key
	releaseRetryDue              // a second release is sent later, because the node has not confirmed the first
	releaseRetrying              // the second release is in flight
	releaseFailed                // no release is sent any more, unless the node turns out to have the lease
	releaseDone                  // the node has confirmed a release
)

// recordSent records a request that is about to be sent.
func (s *nodeState) recordSent(op wire.Op) {
	s.sentOther = s.sentOther || op != wire.OpAcquire
	s.addUnanswered(op, 1)
}

// recordAnswered records that a request was answered.
func (s *nodeState) recordAnswered(op wire.Op) {
	s.addUnanswered(op, -1)
}

// addUnanswered changes the number of unanswered requests by delta.
func (s *nodeState) addUnanswered(op wire.Op, delta int32) {
	s.unanswered += delta
	if op == wire.OpRelease {
		s.unansweredReleases += delta
	}
}

// needsNoTombstone reports whether a release that finds the lease on the node may leave nothing behind: no other request of
// the attempt can still arrive there. If only the acquisition is unanswered, the lease shows that it has arrived, and an
// acquisition is sent once.
func (s *nodeState) needsNoTombstone() bool { return s.unanswered == 0 || !s.sentOther }

// recordGrant records that the node granted the key. A grant that is received after a renewal adds nothing.
func (s *nodeState) recordGrant(got node.Reply) {
	if s.expiry == 0 {
		s.memory = got.Memory
	}
	s.recordConfirmation(got)
}

// recordConfirmation records the expiry that a node reported for the lease. Replies can overtake each other.
func (s *nodeState) recordConfirmation(got node.Reply) {
	if got.Expiry >= s.expiry {
		s.expiry = got.Expiry
		s.nodeClock = got.Clock
		s.confirmedAt = got.Sent
	}
}

// recordRenewal records the reply to a renewal. It reports whether the node has the lease, and whether this machine's
// clock stood still since the last confirmation: then more time has passed on the node than can have passed here.
// Without a clock window, slept is always false.
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

// debtIfGranted returns the debt to a node that turns out to have the lease of an attempt that has ended: its grant came late,
// or its reply names the attempt as the holder. It reports whether to send a release now: if it was postponed, or if all
// earlier releases failed. It changes nothing.
func (s *nodeState) debtIfGranted() (debt releaseDebt, now bool) {
	if s.debt == releaseFailed {
		return releaseRetryDue, true
	}
	return s.debt, s.debt == releasePostponed
}

// recordRelease records the reply to a release. It returns the verdict that counts, and reports whether another
// release must be sent, because the node did not record the end of the attempt or has not answered.
//
// If an earlier release has ended the attempt, or may have, a refusal counts as a confirmation.
func (s *nodeState) recordRelease(got node.Reply, cooldown bool) (v wire.Verdict, again bool) {
	v = got.Verdict
	isConfirmed := v == wire.Gone && s.mayHaveEnded(got, cooldown)
	if isConfirmed {
		v = wire.Granted
	}

	switch {
	case v == wire.Granted:
		s.debt = releaseDone
	case v == wire.Gone || v == wire.TooLate: // the node does not have the attempt's lease
	case s.debt == releaseRetrying:
		s.debt = releaseFailed
	default:
		again = s.debt == nothingOwed || s.debt == releaseFailed
	}
	return v, again
}

// mayHaveEnded reports whether an earlier release has ended the attempt on a node that does not have it now, or may
// have ended it because its answer is missing. In the latter case it is unknown whether another attempt took the key
// before that release or after it.
//
// A node that knows how the attempt ended leaves no doubt. Neither does a cooldown: the node either keeps it or does
// not.
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

// takeDue takes the release that is due for a node. It reports whether to send it, which is the case if the node may
// have the lease, or a request of the attempt may still arrive there, and whether it is the node's first release.
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
