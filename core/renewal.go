package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A renewal is a round that extends a lease. Nobody waits for the watchdog's: whoever brings the vote that decides it
// goes on from there, and the watchdog ends it when its time is up.
type renewal struct {
	node.Round
	lease     *Lease
	margin    time.Duration // of the lease when it began
	end       func(Outcome) // nil where nobody observes
	expiresAt clock.Instant // when it has had its time; 0 = it is not on its way. Guarded by the lease's lock
}

// renewable reports whether the lease lives on only if it is renewed, and its holder still wants it. Called with the lock.
func (lease *Lease) renewable() bool { return lease.outlivesTrust() && lease.ctx.Context.Err() == nil }

// plan has the lease looked at when it is to be renewed, when the renewal under way has had its time, or when
// the lease's trusted time is over. Called with the lock.
func (lease *Lease) plan() {
	at := lease.until.Load()
	switch r := lease.renewing; {
	case r != nil && r.expiresAt != 0:
		at = min(at, r.expiresAt)
	case r == nil && lease.renewable():
		at = min(at, lease.renewAt)
	}
	lease.e.watchdog.watch(lease, at)
}

// inspect does what is due, and returns the renewal that is, by then, which is to be sent.
func (lease *Lease) inspect(now, then clock.Instant) (due *renewal) {
	lease.expire()
	lease.mu.Lock()
	if lease.state != leaseHeld {
		lease.mu.Unlock()
		return nil
	}
	var late *renewal
	switch r := lease.renewing; {
	case r != nil && r.expiresAt != 0 && now >= r.expiresAt:
		late, r.expiresAt = r, 0
	case r == nil && then >= lease.renewAt && lease.renewable():
		due = lease.renewal()
		lease.renewing = due
	}
	lease.plan()
	lease.mu.Unlock()
	if late != nil {
		late.Expire() // which plans the next
	}
	return due
}

// renewal makes the round of a renewal. Called with the lock.
func (lease *Lease) renewal() *renewal {
	r := &renewal{lease: lease}
	r.Init(lease.e.Group, wire.OpRenew, lease.lock.Bucket, lease.p.nodeTimeout, r, (*node.Round).Settled)
	lease.reached = quorum.All(len(lease.nodes)) // from now on a release has to reach all of them
	r.Each = lease.lock.Renew(lease.p.lease, len(lease.nodes), func(i int) wire.Renew {
		return wire.Renew{Token: lease.token, Confirmed: lease.nodes[i].expiry, Turn: lease.p.turn, Carried: lease.p.carries}
	})
	return r
}

// start sends a round of the watchdog's. An observer is the user's code, which its timer does not wait for.
func (r *renewal) start() {
	r.OnOver = r.conclude
	if r.lease.p.observer.Start == nil && r.lease.p.observer.Node == nil {
		if r.Group.Enlist() {
			defer r.Group.Done()
			r.sendOff(r.lease.ctx.parent)
		}
		return
	}
	r.Group.Go(func() {
		r.margin = r.lease.left()
		var ctx context.Context
		ctx, r.end = r.lease.p.observe(context.WithoutCancel(r.lease.ctx.parent), OpRenew, r.lease.lock.Key, false, r.lease.token)
		r.sendOff(ctx)
	})
}

// sendOff sends the round. Its time begins now, and not when it was made: in between, this process may have been busy
// elsewhere, or paused.
func (r *renewal) sendOff(ctx context.Context) {
	r.Send(ctx, quorum.All(len(r.Group.Nodes)))
	lease := r.lease
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.renewing == r && lease.state == leaseHeld { // it is not over yet
		r.expiresAt = r.Sent.Add(r.Timeout)
		lease.plan()
	}
}

// isEnded is asked when a request is about to be sent: since it was made, the lease may have ended in any way.
func (r *renewal) IsEnded() bool {
	lease := r.lease
	lease.mu.Lock()
	defer lease.mu.Unlock()
	return lease.ended || lease.left() <= 0 || lease.ctx.Context.Err() != nil
}

func (r *renewal) Sends(op wire.Op, node int) bool { return !r.IsEnded() && r.lease.sends(op, node) }

// hear books a reply. Who is revoked by one node need not hear it of others: they may have forgotten it.
func (r *renewal) Hear(op wire.Op, got node.Reply) (v wire.Verdict, slept bool) {
	lease := r.lease
	if got.Revoked {
		lease.lose(LossRevoked)
	}
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.noteAnswer(op, got)
	// A node that was taken again may have forgotten who was granted the key meanwhile; but nobody was who could
	// act on it, as long as this lease is trusted when it hears of it.
	has, slept := lease.nodes[got.Node].confirms(got, lease.p.Window)
	if has && lease.state == leaseHeld && !lease.completing && lease.left() > 0 {
		lease.nodes[got.Node].memory = got.Memory
	}
	return got.Verdict, slept
}

// conclude ends a round of the watchdog's: the lease is extended from the moment the round began if a quorum confirms it,
// lost if no quorum can, and tried again soon otherwise.
func (r *renewal) conclude() {
	lease, t := r.lease, &r.Tally
	failure := lease.fateError(OpRenew, t.Renewed())
	if failure != nil && failure.Reason != "" {
		lease.lose(failure.Reason)
	}
	lease.replan(r.Sent, failure == nil, t.Count(wire.Gone) > 0)
	if r.end == nil {
		return
	}
	out := Outcome{Token: lease.token, Margin: r.margin, Nodes: report(r.lease.e.Group, t, true)}
	if failure != nil {
		failure.Nodes = out.Nodes
		out.Err, out.Reason = failure, failure.Reason
	}
	r.Group.Go(func() { r.end(out) })
}

// replan notes the end of a round that was sent at that time, and plans the next. A node that others
// were in keeps a turn for this lease, so the next round comes before that ends; but every other one at most is early.
func (lease *Lease) replan(sent clock.Instant, ok, occupied bool) {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	lease.renewing = nil
	if lease.state != leaseHeld {
		return
	}
	soon := lease.e.Clock.Now().Add(lease.p.ttl / 20)
	if ok = ok && lease.left() > 0; ok { // a reply that comes after validity extends nothing
		lease.trust(sent)
	}
	lease.renewed(ok, occupied, soon, sent.Add(lease.renewalPeriod()))
	lease.plan()
}

// renewalPeriod is drawn anew each time, so that leases taken together are not renewed together for ever.
func (lease *Lease) renewalPeriod() time.Duration {
	tenth := lease.p.renewEvery / 10
	return lease.p.renewEvery - tenth + time.Duration(lease.e.jitter(int64(2*tenth)+1))
}
