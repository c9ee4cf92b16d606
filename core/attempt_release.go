package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A release ends an attempt on the nodes, whether or not it became a lease. A node that has not answered yet is sent a
// release only if it turns out to have granted the key. On three nodes this saves a tenth of the requests of an
// acquisition: 3.0 instead of 3.3.

// newReleaseRound returns a round that ends the attempt and keeps the resource taken for the cooldown, rounded up to
// whole milliseconds. A call that goes on waiting gets its place in the queues back.
func (a *attempt) newReleaseRound(cooldown time.Duration) *node.Round {
	a.mu.Lock()
	end, arrived := a.newRelease(cooldown)
	a.mu.Unlock()

	r := a.newRound(wire.OpRelease, (*node.Round).LeaseDecided)
	r.AskTroubled = true // a node in trouble may have granted the key
	all := quorum.All(len(a.nodes))
	end.Arrived = arrived == all
	r.Request = a.lock.Release(end)

	// Some nodes need a tombstone and some do not.
	differ := arrived != 0 && arrived != all
	if differ {
		end.Arrived = true
		withTombstone, without := r.Request, a.lock.Release(end)
		r.Each = func(i int) wire.Request {
			if arrived.Has(i) {
				return without
			}
			return withTombstone
		}
	}
	return r
}

// newRelease returns the request that ends the attempt, and records that it is sent. It also returns the nodes that
// need no tombstone: if they find the lease, no request of the attempt can arrive there any more. a.mu must be held.
func (a *attempt) newRelease(cooldown time.Duration) (end wire.Release, arrived quorum.Set) {
	for i := range a.nodes {
		clientRepeats := a.e.Nodes[i].MayRetry
		if a.nodes[i].needsNoTombstone() && !clientRepeats {
			arrived = arrived.With(i)
		}
	}

	end = wire.Release{
		TombstoneLife: a.p.tombstoneMillis,
		Cooldown:      cooldown,
		Repeated:      a.releaseSent,
		Channel:       a.bucket.Channel,
		Waiter:        a.leavingWaiter(),
	}
	a.releaseSent = true

	switch {
	case a.exposure == tokenReported:
		end.DropBelow = a.token // a record with a smaller ballot cannot be decided any more
	case a.exposure == tokenUnseen && !a.completionSent:
		end.RestoreCounter = true // the node may grant the token again
	}

	// The release of an attempt whose call goes on waiting gives the call its place back.
	goesOn := a.place != leaving && a.waiter != nil && a.waiter.Active()
	if goesOn {
		end.Waiter = a.waiter.Name
	}
	return end, arrived
}

// releaseAll sends the end of the attempt to all nodes, and does not wait for their answers.
func (a *attempt) releaseAll(ctx context.Context) {
	r := a.newReleaseRound(0)
	r.Send(ctx, quorum.All(len(a.nodes)))
	r.Abandon()
}

// scheduleRelease sends a release to a node in the background, after a delay. While the Locker closes, the release is
// sent at once; once the Locker is closed, it is not sent. a.mu must be held.
func (a *attempt) scheduleRelease(i int, debt releaseDebt, after time.Duration) {
	scheduled := a.e.AfterFunc(after, func() { a.sendScheduledRelease(i) })
	if scheduled {
		a.nodes[i].debt = debt
	}
}

// sendScheduledRelease sends a node the release that the attempt still owes it, if any. If a second release is not
// confirmed either, the lease runs out on the node, unless the node names the attempt as a holder before. The clock
// window rejects requests that are still in flight.
func (a *attempt) sendScheduledRelease(node int) {
	a.mu.Lock()
	isDue, isFirst := a.nodes[node].takeDue()
	a.mu.Unlock()
	if !isDue {
		a.e.Tasks.Leave()
		return
	}

	r := a.newReleaseRound(a.lease.cooldownLeft())
	r.AskTroubled = isFirst // a retry is not sent to a node in trouble
	r.OnOver = a.e.Tasks.Leave
	r.Send(context.Background(), quorum.Set(0).With(node)) //nolint:forbidigo // it outlives its caller
}

// leavingWaiter returns the name that the nodes must remove from their queues. It is the zero Waiter while the call
// goes on waiting, and if the call is in no queue. a.mu must be held.
func (a *attempt) leavingWaiter() wire.Waiter {
	switch {
	case a.place != leaving:
		return wire.Waiter{}
	case a.waiter != nil:
		return a.waiter.Name.Leaving()
	default:
		return a.lock.Waiter()
	}
}

// releaseLeftover sends the release of an attempt again to a node that names the attempt as the holder. It does nothing
// if the node has confirmed a release or if one is in flight.
func (e *engine) releaseLeftover(got node.Reply) {
	if got.Verdict != wire.Held {
		return
	}
	a := e.leftovers.named(got.Owner)
	if a == nil {
		return
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	debt, now := a.nodes[got.Node].debtIfGranted()
	if now {
		a.scheduleRelease(got.Node, debt, 0)
	}
}
