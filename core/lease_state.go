package core

import (
	"cmp"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// A lifecycle is the state of a lease: a state machine without I/O, lock, timer or log. The lease does the work that a
// transition asks for, and guards it by its lock.
//
//	           markHeld   markLost       markEnded   recordFoundLost, by its release
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

// A leaseState is the state of a lifecycle.
type leaseState uint8

const (
	leasePending leaseState = iota // the attempt is under way
	leaseHeld
	leaseLost // ended before its holder ended it
	leaseOver // released or completed
)

// markHeld records that the attempt has become a lease.
func (l *lifecycle) markHeld(now, renewAt clock.Instant) {
	l.state = leaseHeld
	l.heldSince = now
	l.renewAt = renewAt
}

// markLost records that a held lease has ended before its holder ended it. It reports false if the lease is not held.
func (l *lifecycle) markLost(reason LossReason) bool {
	if l.state != leaseHeld {
		return false
	}
	l.state = leaseLost
	l.lossReason = reason
	return true
}

// markEnded records that the holder has ended the lease, and reports whether it was held.
func (l *lifecycle) markEnded() (held bool) {
	held = l.state == leaseHeld
	l.state = leaseOver
	return held
}

// recordRelease records a call of Release, and reports whether a cooldown may begin with it: only with the first
// release of a lease that was not lost.
func (l *lifecycle) recordRelease() bool {
	first := !l.releaseCalled
	l.releaseCalled = true
	return first && l.knownLoss() == ""
}

// recordFoundLost records why a release found the lease lost ("" = it did not), and reports whether that is news.
func (l *lifecycle) recordFoundLost(reason LossReason) bool {
	if reason == "" || l.knownLoss() != "" {
		return false
	}
	l.lossReason = reason
	return true
}

// recordCompletion records the result of a completion. refused is the reason if it was refused. It is "" if the
// completion was confirmed, or if too few nodes have answered.
func (l *lifecycle) recordCompletion(confirmed bool, refused LossReason) {
	switch {
	case confirmed:
		l.completed = true
		l.refusedReason = ""
	case refused != "":
		l.refusedReason = refused
	}
}

// knownLoss returns why the holder was not alone until its end, as far as is known; "" if it was.
func (l *lifecycle) knownLoss() LossReason {
	return cmp.Or(l.lossReason, l.refusedReason)
}

// recordRenewal records the end of a renewal, and sets the time of the next one: at period, or soon if this one
// failed. A node that was granted to others (occupied) keeps a turn for this lease, so the next renewal comes soon,
// before that turn ends. At most every other renewal is early.
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
