package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// How an attempt ends on the nodes, as a lease or without having become one. A node that is late is told only where it
// turns out to have granted, which saves a tenth of the requests of an acquisition on three nodes: 3.0 for 3.3.

// abandon ends an attempt that did not become a lease: what nodes granted or may still grant is released. Where none
// granted, those that have not answered need not be told yet. The call keeps its place in their queues until wait is
// over. abandon waits for the nodes that granted, because the next attempt would find its own traces there; not for a
// caller who has given up.
func (a *attempt) abandon(ctx, wait context.Context, t *quorum.Tally) {
	touched, granted := t.MayHold(), t.With(wire.Granted)
	a.mu.Lock()
	a.ended = true
	a.seen = a.seen || touched.Len() >= quorum.Of(len(a.nodes))
	a.quits = a.quits || a.wait != nil && wait.Err() != nil
	a.mu.Unlock()
	if granted == 0 && !a.quits && wait.Err() == nil {
		touched &^= a.awaiting(t.Unheard())
	}
	r := a.releasing(0)
	r.Decided = func(r *node.Round) bool { return granted&r.Unheard() == 0 }
	r.Send(ctx, touched)
	if granted == 0 {
		r.Leave()
		return
	}
	r.Wait(wait)
}

// awaiting are those of the nodes that will most likely answer yet that they did not grant the attempt, or have. If
// they did, or do not answer within the node timeout, they are told then that it is over.
func (a *attempt) awaiting(nodes quorum.Set) (s quorum.Set) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.nodes {
		n := &a.nodes[i]
		if !nodes.Has(i) || n.expiry != 0 {
			continue
		}
		if n.unanswered > 0 && a.e.unheard.push(a, i, a.p.nodeTimeout) {
			n.owed = owedLater
		}
		if n.unanswered == 0 || n.owed == owedLater {
			s = s.With(i)
		}
	}
	return s
}

// goesOn reports whether the call that made the attempt goes on waiting, and did so before it. Called with the lock.
func (a *attempt) goesOn() bool {
	return a.wait != nil && !a.quits && a.reached == 0 && a.wait.GoesOn()
}

// releasing is a round that ends the attempt, and keeps the resource taken for stay, in whole milliseconds and no
// shorter. The call that made the attempt gets its place in the queues back while it goes on. A node that has
// answered all that it was sent needs no tombstone: nothing can arrive there any more.
func (a *attempt) releasing(stay time.Duration) *node.Round {
	a.mu.Lock()
	spared := quorum.Set(0)
	for i := range a.nodes {
		if a.nodes[i].unanswered == 0 && !a.e.Nodes[i].Repeats {
			spared = spared.With(i)
		}
	}
	end := wire.Release{Bury: a.p.bury, Stay: stay, Channel: a.e.waits.Channels[a.lock.Bucket], Waiter: a.quitting()}
	// Whether the attempt became a lease, or has sent a completion: either makes its token known. Neither can come
	// to be after the first release.
	switch {
	case a.reached != 0:
		end.DropBelow = a.token // no record with a smaller ballot can be decided any more
	case !a.completing && !a.seen:
		end.Undo = true // nobody has seen the token, so the node may give it out again
	}
	if end.Waiter.Name == "" && a.goesOn() {
		end.Waiter = a.wait.Name
	}
	a.mu.Unlock()

	r := a.round(wire.OpRelease, (*node.Round).Settled)
	if spared == quorum.All(len(a.nodes)) {
		end.Bury = wire.Millis{}
	}
	r.Must, r.Request = true, a.lock.Release(a.e.Head.Load(), end)
	if spared != 0 && end.Bury != (wire.Millis{}) {
		buried, without := r.Request, r.Request.WithoutTombstone()
		r.Each = func(i int) wire.Request {
			if spared.Has(i) {
				return without
			}
			return buried
		}
	}
	return r
}

// free tells all nodes, without waiting for them, that the lease is over.
func (a *attempt) free() {
	a.mu.Lock()
	to := a.reached
	a.mu.Unlock()
	r := a.releasing(0)
	r.Send(context.Background(), to) //nolint:forbidigo // an end is sent whatever became of its caller
	r.Leave()
}

// resend tells a node that the attempt is over, if it is still owed that. If it is told again, and that fails, too,
// the lease runs out by itself, and the clock window refuses what is still under way.
func (a *attempt) resend(node int) {
	a.mu.Lock()
	tell, first := a.nodes[node].due()
	a.mu.Unlock()
	if !tell {
		a.e.Done()
		return
	}
	r := a.releasing(a.stay())
	r.Must, r.OnOver = first, a.e.Done
	r.Send(context.Background(), quorum.Set(0).With(node)) //nolint:forbidigo // an end is sent whatever became of its caller
}
