package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A renewal is a round that extends a lease. Nobody waits for it: the goroutine that brings the deciding vote goes on from
// there, and the watchdog ends the round when its time is up.
type renewal struct {
	node.Round
	lease       *Lease
	margin      time.Duration // of the lease when the round began
	observed    bool          // the observer is told of it
	observerEnd func(Outcome) // what the observer returned; only what is told after the beginning looks at it
	expiresAt   clock.Instant // when the round has had its time; Never: it is not under way. The lease's lock guards it
}

// renewable reports whether the lease lives on only if it is renewed, and its holder still wants it. Called with the lock.
func (lease *Lease) isRenewable() bool { return lease.outlivesTrust() && lease.isWanted() }

// plan makes the watchdog look at the lease when it must be renewed, when the renewal under way has had its time, or when the
// lease's trusted time is over. Called with the lock.
func (lease *Lease) schedule() {
	at := lease.liveUntil.Load()
	if r := lease.renewal; r != nil {
		at = min(at, r.expiresAt)
	} else if lease.isRenewable() {
		at = min(at, lease.renewAt)
	}
	lease.attempt.e.watchdog.reschedule(lease, at)
}

// inspect does what is due now, and returns the renewal that is due by then, for the watchdog to send.
func (lease *Lease) inspect(now, then clock.Instant) (due *renewal) {
	lease.expire()

	lease.attempt.mu.Lock()
	if lease.state != leaseHeld {
		lease.attempt.mu.Unlock()
		return nil
	}
	var late *renewal
	r := lease.renewal
	switch {
	case r != nil && now >= r.expiresAt:
		late = r
		r.expiresAt = clock.Never
	case r == nil && then >= lease.renewAt && lease.isRenewable():
		due = lease.beginRenewal()
		lease.renewal = due
	}

	// The lease is scheduled in any case: its trust ends even if no reply comes.
	lease.schedule()
	lease.attempt.mu.Unlock()

	// Without the lock, because a round that expires concludes the renewal, which takes the lock and schedules the next one.
	if late != nil {
		late.Expire()
	}
	return due
}

// newRenewal makes the round of a renewal. From now on a release must reach all nodes. Called with the lock.
func (lease *Lease) beginRenewal() *renewal {
	r := &renewal{lease: lease, expiresAt: clock.Never}
	lease.attempt.initRenewRound(&r.Round)
	lease.askedNodes = quorum.All(len(lease.attempt.nodes))
	return r
}

// start sends the round for the watchdog. The watchdog's timer does not wait for the observer.
func (r *renewal) start() {
	entered := r.Tasks.Enter()
	if !entered {
		return
	}
	defer r.Tasks.Leave()
	r.OnOver = r.conclude
	r.observeStart()
	r.sendRound()
}

// observeStart has the observer told that the round begins.
func (r *renewal) observeStart() {
	lease, p := r.lease, r.lease.attempt.p
	if p.observer.Start == nil {
		return
	}
	r.observed = r.Group.Callbacks.Post(lease.attempt.callbacks, func() {
		ctx := context.WithoutCancel(lease.ctx.parent)
		_, r.observerEnd = p.observe(ctx, OpRenew, lease.Key(), false, lease.FencingToken())
	})
}

// observeEnd has the observer told how the round ended, after it was told of the beginning.
func (r *renewal) observeEnd(out Outcome) {
	r.Group.Callbacks.PostAlways(r.lease.attempt.callbacks, func() {
		if r.observerEnd != nil {
			r.observerEnd(out)
		}
	})
}

// sendOff sends the round. Its time begins now, and not when it was made: in between, this process may have been busy
// elsewhere, or paused.
func (r *renewal) sendRound() {
	lease := r.lease
	r.margin = lease.remaining()
	r.Send(lease.ctx.parent, quorum.All(len(r.Group.Nodes)))

	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	isCurrent := lease.renewal == r && lease.state == leaseHeld
	if isCurrent {
		r.expiresAt = r.Sent.Add(r.Timeout)
		lease.schedule()
	}
}

// conclude ends the round. If a quorum confirms the lease, it is extended from the moment the round began. If no quorum can,
// the lease is lost. Otherwise it is renewed again soon.
func (r *renewal) conclude() {
	lease, t := r.lease, &r.Tally
	fate := t.Renewed()
	reason := fateErrors[fate].reason
	if reason != "" {
		lease.declareLost(reason)
	}
	lease.onRenewalOver(r.Sent, fate == quorum.Confirmed, t.Count(wire.Gone) > 0)
	if !r.observed {
		return
	}

	out := Outcome{
		Reason: reason,
		Token:  lease.FencingToken(),
		Margin: r.margin,
		Nodes:  replies(lease.attempt.e.Group, t),
	}
	out.Err = fateError(OpRenew, lease.Key(), fate, out.Nodes)
	r.observeEnd(out)
}

// replan notes the end of a round that was sent at that time, and plans the next one. A node that others were in keeps a turn
// for this lease.
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
		lease.extendTrust(sent, lease.attempt.p)
	}
	period := sent.Add(lease.renewalPeriod())
	lease.recordRenewal(confirmed, occupied, soon, period)
	lease.schedule()
}

// renewalPeriod is drawn anew each time, so that leases taken together are not renewed together for ever.
func (lease *Lease) renewalPeriod() time.Duration {
	every := lease.attempt.p.renewEvery
	tenth := every / 10
	return every - tenth + time.Duration(lease.attempt.e.jitter(int64(2*tenth)+1))
}
