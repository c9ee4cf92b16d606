package core

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// A term says how long a lease lasts, by the clock of this process. The lock of the lease guards the first two instants, and
// every change. The other three are read without it, because nobody who looks at a context may wait.
type term struct {
	clock        clock.Stopwatch
	trustedUntil clock.Instant // the end of validity less the margin, unless a renewal succeeds
	holdUntil    clock.Instant // the end that MaxHold has set; Never without MaxHold

	liveUntil     clock.AtomicInstant // when the context ends unless a renewal succeeds: the earlier of trustedUntil and holdUntil
	keptUntil     clock.AtomicInstant // until when the nodes keep the key if the holder vanishes
	cooldownUntil clock.AtomicInstant // when somebody gets the key at the earliest, because of Cooldown; 0 if there is none
}

// trust moves the end of trust by what a quorum has confirmed to a request that was sent at that time. It never takes trust
// back, and lifts no end that MaxHold has set.
func (t *term) extendTrust(sent clock.Instant, p *policy) {
	t.trustedUntil = max(t.trustedUntil, sent.Add(p.validity-p.margin))
	t.liveUntil.Store(t.endsAt())
	t.keptUntil.Store(max(t.keptUntil.Load(), sent.Add(p.ttl)))
}

// holdFor makes the lease end that long from now, or when its trust ends.
func (t *term) setMaxHold(d time.Duration) {
	t.holdUntil = t.clock.Now().Add(d)
	t.liveUntil.Store(t.endsAt())
}

// endNow ends the lease.
func (t *term) endNow() { t.liveUntil.Store(min(t.liveUntil.Load(), t.clock.Now())) }

// endsAt returns when the lease ends unless a renewal succeeds before.
func (t *term) endsAt() clock.Instant { return min(t.trustedUntil, t.holdUntil) }

// outlivesTrust reports whether the lease may live on beyond its trust, if it is renewed.
func (t *term) outlivesTrust() bool { return t.trustedUntil < t.holdUntil }

// refine returns why the lease was lost: one that has expired may have been held for as long as MaxHold allows.
func (t *term) refineReason(reason LossReason) LossReason {
	if reason == LossExpired && !t.outlivesTrust() {
		return LossMaxHold
	}
	return reason
}

// remaining returns for how long the lease can still be trusted.
func (t *term) remaining() time.Duration { return t.liveUntil.Load().Since(t.clock.Now()) }

// keptFor returns how long the nodes keep the key if its holder vanishes now.
func (t *term) keptFor() time.Duration {
	return max(t.keptUntil.Load(), t.cooldownUntil.Load()).Since(t.clock.Now())
}

// cool begins a cooldown of d.
func (t *term) startCooldown(d time.Duration) { t.cooldownUntil.Store(t.clock.Now().Add(d)) }

// cooldownLeft returns what is left of the cooldown that a release began.
func (t *term) cooldownLeft() time.Duration {
	return max(t.cooldownUntil.Load().Since(t.clock.Now()), 0)
}
