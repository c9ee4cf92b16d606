package core

import "github.com/lockkit/lockkit/core/internal/clock"

// A lifecycle is the life of a lease: a state machine without I/O, lock, timer or log. Its owner, the lease, does what a
// transition asks for.
//
//	           held   lost           over   outvoted at its release
//	pending    held   –              over   stays, with a reason
//	held       –      lost: reason   over   –
//	lost       –      stays          over   stays, with the reason that it has
//	over       –      stays          stays  stays, with a reason unless it has one
type lifecycle struct {
	state            leaseState
	released         bool          // Release was called
	freed, completed bool          // a quorum has confirmed Release, Complete
	rejoining        bool          // the next renewal is early, for a node that others were in
	reason           LossReason    // it was lost, or a release found it lost
	since            clock.Instant // when it was reported
	renewAt          clock.Instant
	trustedUntil     clock.Instant // end of validity less the margin, unless a renewal succeeds
	holdUntil        clock.Instant // its end for MaxHold
}

type leaseState uint8

const (
	leasePending leaseState = iota // the attempt is under way
	leaseHeld
	leaseLost // ended before its holder ended it
	leaseOver // released or completed
)

// endsAt is when the lease ends unless a renewal succeeds before.
func (l *lifecycle) endsAt() clock.Instant { return min(l.trustedUntil, l.holdUntil) }

// outlivesTrust reports whether the lease may live on beyond its trust, if it is renewed.
func (l *lifecycle) outlivesTrust() bool { return l.trustedUntil < l.holdUntil }

// held notes that the attempt has become a lease.
func (l *lifecycle) held(now, renewAt clock.Instant) {
	l.state, l.since, l.renewAt = leaseHeld, now, renewAt
}

// lost notes that a held lease has ended before its holder ended it, and says why: what has expired may have been held for as
// long as it was to be. It reports false where the lease is not held.
func (l *lifecycle) lost(reason LossReason) (why LossReason, was bool) {
	if l.state != leaseHeld {
		return "", false
	}
	if reason == LossExpired && !l.outlivesTrust() {
		reason = LossMaxHold
	}
	l.state, l.reason = leaseLost, reason
	return reason, true
}

// finish notes that the holder has ended the lease, and reports whether it was held.
func (l *lifecycle) finish() (held bool) {
	held, l.state = l.state == leaseHeld, leaseOver
	return held
}

// rests notes a release, and reports whether a cooldown may begin with it: with the first, of a lease that was not lost.
func (l *lifecycle) rests() bool {
	first := !l.released
	l.released = true
	return first && l.reason == ""
}

// outvoted notes why a release found the lease lost, "" where it did not, and reports whether nobody knew.
func (l *lifecycle) outvoted(reason LossReason) bool {
	if reason == "" || l.reason != "" {
		return false
	}
	l.reason = reason
	return true
}

// renewed notes the end of a renewal, and plans the next: a period after it began, or soon where it failed. A node that others
// were in keeps a turn for this lease, so the next comes soon, before that ends; but every other one at most.
func (l *lifecycle) renewed(ok, occupied bool, soon, period clock.Instant) {
	l.renewAt = soon
	if !ok {
		return
	}
	if l.rejoining = occupied && !l.rejoining; !l.rejoining {
		l.renewAt = period
	}
}
