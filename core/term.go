package core

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// A term is the time for which a lease lasts, by the clock of this process. The lease's lock guards trustedUntil,
// holdUntil and isHoldSet, and every change of the others. The others are read without the lock, because a look at a
// context must not block.
type term struct {
	clock        clock.Stopwatch
	trustedUntil clock.Instant // the end of validity less the margin, unless a renewal succeeds
	holdUntil    clock.Instant // the end that MaxHold has set; Never without MaxHold
	isHoldSet    bool          // MaxHold has set an end, which may be Never

	liveUntil     clock.AtomicInstant // the earlier of trustedUntil and holdUntil: the context ends then
	keptUntil     clock.AtomicInstant // the nodes keep the key until then if the holder vanishes
	cooldownUntil clock.AtomicInstant // the end of the Cooldown; 0 if there is none
}

// extendTrust extends trust after a quorum has confirmed a request that was sent at that time. It never shortens
// trust, and does not move the end that MaxHold has set.
func (t *term) extendTrust(sent clock.Instant, p *policy) {
	t.trustedUntil = max(t.trustedUntil, sent.Add(p.validity-p.margin))
	t.liveUntil.Store(t.endsAt())
	t.keptUntil.Store(max(t.keptUntil.Load(), sent.Add(p.ttl)))
}

// setMaxHold makes the lease end d from now, or when its trust ends.
func (t *term) setMaxHold(d time.Duration) {
	t.holdUntil = t.clock.Now().Add(d)
	t.isHoldSet = true
	t.liveUntil.Store(t.endsAt())
}

// endNow ends the lease now, unless it has ended before.
func (t *term) endNow() {
	t.liveUntil.Store(min(t.liveUntil.Load(), t.clock.Now()))
}

// endsAt returns the time at which the lease ends unless a renewal succeeds before.
func (t *term) endsAt() clock.Instant {
	return min(t.trustedUntil, t.holdUntil)
}

// outlivesTrust reports whether a renewal can make the lease live longer: MaxHold ends it later than its trust does.
func (t *term) outlivesTrust() bool { return t.trustedUntil < t.holdUntil }

// refineReason returns LossMaxHold in place of LossExpired if the lease has reached the end that MaxHold has set.
func (t *term) refineReason(reason LossReason) LossReason {
	if reason == LossExpired && !t.outlivesTrust() {
		return LossMaxHold
	}
	return reason
}

// remaining returns the time until the context ends: until the end of trust, or of MaxHold if that is earlier.
func (t *term) remaining() time.Duration {
	return t.liveUntil.Load().Since(t.clock.Now())
}

// keptFor returns the time for which the nodes keep the key if its holder vanishes now.
func (t *term) keptFor() time.Duration {
	return max(t.keptUntil.Load(), t.cooldownUntil.Load()).Since(t.clock.Now())
}

// startCooldown starts a cooldown of d.
func (t *term) startCooldown(d time.Duration) {
	t.cooldownUntil.Store(t.clock.Now().Add(d))
}

// cooldownLeft returns the rest of the cooldown that a release began.
func (t *term) cooldownLeft() time.Duration {
	return max(t.cooldownUntil.Load().Since(t.clock.Now()), 0)
}
