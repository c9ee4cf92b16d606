package core

import (
	"cmp"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// A lifecycle is the life of a lease: a state machine without I/O, lock, timer or log. Its owner, the lease, does what a
// transition asks for.
//
//	           markHeld   markLost       markEnded   foundLost, by its release
//	pending    held       –              over        stays, with a reason
//	held       –          lost: reason   over        –
//	lost       –          stays          over        stays, with the reason that it has
//	over       –          stays          stays       stays, with a reason unless it has one
type lifecycle struct {
	state            leaseState
	releaseCalled    bool          // Release was called
	releaseConfirmed bool          // a quorum has confirmed a Release
	completed        bool          // a quorum has confirmed a Complete
	rejoining        bool          // the next renewal is early, for a node that was granted to others
	lossReason       LossReason    // why the lease was lost, or why a release found it lost
	refusedReason    LossReason    // why the last completion was refused; "": none was, or one has succeeded since
	heldSince        clock.Instant // when the attempt became a lease
	renewAt          clock.Instant
}

type leaseState uint8

const (
	leasePending leaseState = iota // the attempt is under way
	leaseHeld
	leaseLost // ended before its holder ended it
	leaseOver // released or completed
)

// markHeld notes that the attempt has become a lease.
func (l *lifecycle) markHeld(now, renewAt clock.Instant) {
	l.state = leaseHeld
	l.heldSince = now
	l.renewAt = renewAt
}

// markLost notes that a held lease has ended before its holder ended it. It reports false if the lease is not held.
func (l *lifecycle) markLost(reason LossReason) bool {
	if l.state != leaseHeld {
		return false
	}
	l.state = leaseLost
	l.lossReason = reason
	return true
}

// markEnded notes that the holder has ended the lease, and reports whether it was held.
func (l *lifecycle) markEnded() (held bool) {
	held = l.state == leaseHeld
	l.state = leaseOver
	return held
}

// noteRelease notes a release, and reports whether a cooldown may begin with it: only with the first release of a lease that
// was not lost.
func (l *lifecycle) recordRelease() bool {
	first := !l.releaseCalled
	l.releaseCalled = true
	return first && l.knownLoss() == ""
}

// foundLost notes why a release found the lease lost ("" = it did not), and reports whether that is news.
func (l *lifecycle) recordFoundLost(reason LossReason) bool {
	if reason == "" || l.knownLoss() != "" {
		return false
	}
	l.lossReason = reason
	return true
}

// noteCompletion notes that a quorum has confirmed a completion, or why it was refused; "" = too few nodes have answered.
func (l *lifecycle) recordCompletion(confirmed bool, refused LossReason) {
	switch {
	case confirmed:
		l.completed = true
		l.refusedReason = ""
	case refused != "":
		l.refusedReason = refused
	}
}

// whyLost is why the holder was not alone to its end, as far as is known; "" = it was.
func (l *lifecycle) knownLoss() LossReason { return cmp.Or(l.lossReason, l.refusedReason) }

// noteRenewal notes the end of a renewal, and plans the next one: a period after this one began, or soon if it failed. A node
// that others were in keeps a turn for this lease, so the next renewal comes soon, before that turn ends; but at most every
// other renewal is early.
func (l *lifecycle) recordRenewal(ok, occupied bool, soon, period clock.Instant) {
	l.renewAt = soon
	if !ok {
		return
	}
	l.rejoining = occupied && !l.rejoining
	if !l.rejoining {
		l.renewAt = period
	}
}
