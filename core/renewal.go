package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A renewal is a round that extends a lease. No goroutine waits for it: the goroutine that brings the deciding vote
// concludes it, and the watchdog ends the round at its timeout.
type renewal struct {
	node.Round
	lease    *Lease
	trusted  time.Duration // the lease's remaining time when the round began
	observed bool          // the observer is called for this round

	// observerEnd is the function that Observer.Start returned. Only the callback queue of the lease uses it.
	observerEnd func(Outcome)

	// timeoutAt is the timeout of the round; Never until the round has been sent, and after the timeout. The lease's
	// lock guards it.
	timeoutAt clock.Instant
}

// isRenewable reports whether the lease needs a renewal to live on, and its holder's context is live. The lease's
// lock must be held.
func (lease *Lease) isRenewable() bool {
	return lease.outlivesTrust() && lease.isWanted()
}

// schedule sets the next inspection: at the next renewal, at the timeout of the current one, or when trust ends. The
// lease's lock must be held.
func (lease *Lease) schedule() {
	at := lease.liveUntil.Load()
	if r := lease.renewal; r != nil {
		at = min(at, r.timeoutAt)
	} else if lease.isRenewable() {
		at = min(at, lease.renewAt)
	}
	lease.attempt.e.watchdog.reschedule(lease, at)
}

// inspect expires the lease if its time is over, ends a renewal that has timed out, and returns the renewal to send
// if one is due by until.
func (lease *Lease) inspect(now, until clock.Instant) (due *renewal) {
	// A lease whose time is over ends before anything else, even if its renewal could still be confirmed.
	lease.expire()

	lease.attempt.mu.Lock()
	if lease.state != leaseHeld {
		lease.attempt.mu.Unlock()
		return nil
	}

	var late *renewal
	r := lease.renewal
	switch {
	case r != nil && now >= r.timeoutAt:
		late = r
		r.timeoutAt = clock.Never
	case r == nil && until >= lease.renewAt && lease.isRenewable():
		due = lease.beginRenewal()
		lease.renewal = due
	}

	// The lease is scheduled in any case: its trust ends even if no reply comes.
	lease.schedule()
	lease.attempt.mu.Unlock()

	// TimeOut is called without the lock, because it concludes the renewal, which takes the lock and schedules the
	// next one.
	if late != nil {
		late.TimeOut()
	}
	return due
}

// beginRenewal returns a new renewal. From now on a release must reach all nodes. The lease's lock must be held.
func (lease *Lease) beginRenewal() *renewal {
	r := &renewal{lease: lease, timeoutAt: clock.Never}
	lease.attempt.initRenewRound(&r.Round)
	lease.askedNodes = quorum.All(len(lease.attempt.nodes))
	return r
}

// start sends the round. It does not wait for the observer, because the watchdog's timer calls it.
func (r *renewal) start() {
	// Once the Locker's tasks are closed, the lease has ended, and needs no renewal.
	entered := r.Tasks.Enter()
	if !entered {
		return
	}
	defer r.Tasks.Leave()

	// OnOver is set before the round is sent, because any reply may end the round.
	r.OnOver = r.conclude
	r.observeStart()
	r.sendRound()
}

// observeStart posts the beginning of the round to the observer.
func (r *renewal) observeStart() {
	lease := r.lease
	if !lease.attempt.isObserved(OpRenew) {
		return
	}
	r.observed = r.Group.Callbacks.Post(lease.attempt.callbacks, func() {
		ctx := context.WithoutCancel(lease.ctx.parent)
		_, r.observerEnd = lease.attempt.observe(ctx, OpRenew)
	})
}

// observeEnd posts the end of the round to the observer. The callback queue calls it after the beginning.
func (r *renewal) observeEnd(out Outcome) {
	r.Group.Callbacks.PostAlways(r.lease.attempt.callbacks, func() {
		if r.observerEnd != nil {
			r.observerEnd(out)
		}
	})
}

// sendRound sends the round. Trust and timeout count from now and not from when the renewal was made, because the
// process may have been busy or paused in between.
func (r *renewal) sendRound() {
	lease := r.lease
	r.trusted = lease.remaining()
	r.Send(lease.ctx.parent, quorum.All(len(r.Group.Nodes)))

	// The round may be over already. Then onRenewalOver has scheduled the next one.
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()

	isCurrent := lease.renewal == r && lease.state == leaseHeld
	if isCurrent {
		r.timeoutAt = r.Sent.Add(r.Timeout)
		lease.schedule()
	}
}

// conclude ends the renewal. If a quorum confirms the lease, the lease is extended from the moment the round began.
// If no quorum can confirm it, the lease is lost. Otherwise it is renewed again soon.
func (r *renewal) conclude() {
	lease, t := r.lease, &r.Tally
	outcome := t.RenewOutcome()

	// A loss is declared before anything else, because it ends the lease's context. onRenewalOver then schedules
	// nothing.
	reason := outcomeErrors[outcome].reason
	if reason != "" {
		lease.declareLost(reason)
	}

	lease.onRenewalOver(r.Sent, outcome == quorum.Confirmed, t.Count(wire.Gone) > 0)
	if !r.observed {
		return
	}

	out := Outcome{
		Reason: reason,
		Token:  lease.FencingToken(),
		Margin: r.trusted,
		Nodes:  replies(lease.attempt.e.Group, t),
	}
	out.Err = outcomeError(OpRenew, lease.Key(), outcome, out.Nodes)
	r.observeEnd(out)
}

// onRenewalOver extends the lease if the renewal was confirmed, and schedules the next renewal. sent is when the round
// began. occupied reports that a node had been granted to others; it keeps a turn for this lease.
func (lease *Lease) onRenewalOver(sent clock.Instant, ok, occupied bool) {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	lease.renewal = nil
	if lease.state != leaseHeld {
		return
	}

	soon := lease.attempt.e.Clock.Now().Add(lease.attempt.p.renewalPause)
	confirmed := ok && lease.remaining() > 0 // a reply that comes after the end of trust extends nothing
	if confirmed {
		// Trust counts from when the round began, and not from when the replies arrived.
		lease.extendTrust(sent, lease.attempt.p)
	}
	period := sent.Add(lease.renewalPeriod())
	lease.recordRenewal(confirmed, occupied, soon, period)
	lease.schedule()
}

// renewalPeriod returns the time until the next renewal. It is random, so that leases acquired together are not renewed
// together for ever.
func (lease *Lease) renewalPeriod() time.Duration {
	every := lease.attempt.p.renewEvery
	tenth := every / 10
	return every - tenth + time.Duration(lease.attempt.e.jitter(int64(2*tenth)+1))
}
