package core

import (
	"context"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A call is a call of Acquire, and what its attempts have in common.
type call struct {
	e        *engine
	p        *policy
	key      string
	resource string // the key's name in Redis, and in the local queue
	parent   context.Context
	tryOnly  bool
	carries  string        // what the lease carries
	since    time.Time     // when it began, where it had to wait for its turn in this process
	wait     *queue.Waiter // from the first attempt on that failed; nil = none has

	lease *Lease // that the nodes were asked for on its behalf; nil = it asks by itself
	asked *node.Round
}

// newLease makes a lease to be: an attempt, which asks the nodes for a key under a name of its own. It is known to the nodes by
// that name until they are told that it is over, whether it became a lease or not. What the nodes remember is noted before the
// first request is sent.
func (c *call) newLease() *Lease {
	e := c.e
	lease := &Lease{e: e, bucket: e.Bucket(c.key), p: c.p, lock: e.Keys.Lock(c.key, c.resource, e.attempts.Add(1)), carries: c.carries, waits: !c.tryOnly}
	lease.ctx.lease, lease.ctx.parent = lease, c.parent
	lease.nodes = slices.Grow(lease.only[:0], len(e.Nodes))
	for i := range e.Nodes {
		lease.nodes = append(lease.nodes, nodeState{memory: lease.bucket.Memory(i)})
	}
	if lease.waits && c.wait == nil && !c.since.IsZero() {
		c.wait = queue.NewWaiter(lease.lock.Waiter(), wire.StampOf(c.since), quorum.Of(len(e.Nodes)))
	}
	lease.wait, lease.queued = c.wait, c.wait != nil
	return lease
}

// over ends the attempt: nothing of it is sent any more but its end.
func (lease *Lease) over() {
	lease.mu.Lock()
	lease.ended = true
	lease.mu.Unlock()
}

// round is a round of the attempt.
func (lease *Lease) round(op wire.Op, decided func(*node.Round) bool) *node.Round {
	r := new(node.Round)
	r.Init(lease.bucket, op, lease.p.nodeTimeout, asking{lease}, decided)
	return r
}

// acquiring is the round that asks for the key; to settle a record that is not decided, if recovering: who comes for that
// waits for a node that shows it.
func (lease *Lease) acquiring(recovering bool) *node.Round {
	r := lease.round(wire.OpAcquire, (*node.Round).AcquireDecided)
	if recovering {
		r.Decided = (*node.Round).RecoverDecided
	}
	lease.asked = wire.StampOf(time.Now())
	ask := wire.Acquire{Settle: recovering, Propose: lease.asked, Carried: lease.carries}
	if lease.waits {
		ask.Channel = lease.bucket.Channel
	}
	if lease.wait != nil {
		ask.Waiter = lease.wait.Name
	}
	r.Request = lease.lock.Acquire(lease.p.lease, ask)
	return r
}

// wins reports whether the grants of a round that asked for the key make a lease. A node that had forgotten the longest
// lease may have voted too soon: what it granted to those who did not bring that along does not count.
//
// It fixes the fencing token: the greatest one granted, once a quorum stores it. A node counts only while the lease is on
// it, for then its next grant must be greater. Where that fails, spoilt are the votes of nodes that do not have the lease
// any more, or are not known to.
func (lease *Lease) wins(ctx, wait context.Context, asked *node.Round) (won bool, spoilt []node.Reply) {
	t := &asked.Tally
	if _, _, same := t.SameServer(); same || asked.Outdated() || t.Count(wire.Granted) < t.Q {
		return false, nil
	}
	token, stored := t.Token()
	lease.mu.Lock()
	lease.token = token
	lease.mu.Unlock()
	if stored.Len() >= t.Q {
		return true, nil
	}
	r := lease.round(wire.OpRenew, func(r *node.Round) bool { return r.Count(wire.Granted)+stored.Len() >= r.Q })
	r.Must, r.Each = true, lease.lock.Renew(lease.p.lease, len(t.Votes), func(i int) wire.Renew {
		return wire.Renew{Token: token, Granted: t.Votes[i].Token, Memory: t.Votes[i].Memory}
	})
	r.Send(ctx, t.With(wire.Granted)&^stored)
	r.Wait(wait)
	if r.Count(wire.Granted)+stored.Len() >= t.Q {
		return true, nil
	}
	for i, v := range r.Votes {
		if r.Asked.Has(i) && v.Verdict != wire.Granted {
			spoilt = append(spoilt, node.Reply{Vote: v, Node: i})
		}
	}
	return false, spoilt
}

// asking is a lease, or one to be, as its rounds see it.
type asking struct{ *Lease }

// Sends books a request that is leaving for a node, and reports whether it may. What the nodes are told at the end depends on
// what was sent before.
func (a asking) Sends(op wire.Op, node int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if (op == wire.OpAcquire || op == wire.OpRenew) && a.isOver() {
		return false
	}
	a.nodes[node].sends(op)
	return true
}

// isOver reports whether nothing may be sent any more but the end of the lease. Called with the lock.
func (lease *Lease) isOver() bool {
	return lease.ended || lease.state == leaseHeld && (lease.left() <= 0 || lease.ctx.Context.Err() != nil)
}

// Hear books a reply to one of the rounds. Who is revoked by one node need not hear it of others: they may have forgotten it.
func (a asking) Hear(op wire.Op, got node.Reply) (v wire.Verdict, slept bool) {
	if got.Revoked {
		a.lose(LossRevoked)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := &a.nodes[got.Node]
	if got.Verdict != wire.CircuitOpen && goredis.Answered(got.Err) {
		n.answers(op)
	}
	switch op {
	case wire.OpAcquire:
		a.queued = a.queued || got.Place > 0
		if got.Verdict == wire.Granted {
			n.granted(got)
			if what, now := n.late(); now && a.ended {
				a.tellLater(got.Node, what, 0)
			}
		}
	case wire.OpRenew:
		// A node that was taken again may have forgotten who was granted the key meanwhile; but nobody was who could
		// act on it, as long as this lease is trusted when it hears of it.
		var has bool
		if has, slept = n.confirms(got, a.p.Window); has && a.state == leaseHeld && !a.completing && a.left() > 0 {
			n.memory = got.Memory
		}
	case wire.OpRelease:
		var again bool
		if got.Verdict, again = n.ended(got, a.cooldownLeft() > 0); again {
			a.tellLater(got.Node, owedAgain, a.p.nodeTimeout)
		}
	default: // whoever sent the others keeps what they said
	}
	return got.Verdict, slept
}

// tellLater has a node told in the background, after a delay, that the attempt is over. Called with the lock.
func (lease *Lease) tellLater(i int, what owed, after time.Duration) {
	if lease.e.Later(after, func() { lease.repeatEnd(i) }) {
		lease.nodes[i].owed = what
	}
}

// unqueue ends the attempt, and has its end take the call out of the queues, where it is called as this attempt.
func (lease *Lease) unqueue() {
	lease.mu.Lock()
	lease.queued, lease.quits, lease.ended = true, true, true
	lease.mu.Unlock()
}

// quitting is the call in the queues of the nodes, which leave it out from then on; none while it goes on waiting, or
// never did. Called with the lock.
func (lease *Lease) quitting() wire.Waiter {
	switch {
	case !lease.queued || !lease.quits && lease.reached == 0:
		return wire.Waiter{}
	case lease.wait != nil:
		return lease.wait.Name.Quits()
	}
	return lease.lock.Waiter()
}

// releasing is a round that ends the attempt, and keeps the resource taken for the cooldown, in whole milliseconds and no
// shorter. The call that made the attempt gets its place in the queues back while it goes on.
func (lease *Lease) releasing(cooldown time.Duration) *node.Round {
	lease.mu.Lock()
	arrived, all := quorum.Set(0), quorum.All(len(lease.nodes))
	for i := range lease.nodes {
		if lease.nodes[i].arrived() && !lease.e.Nodes[i].Repeats {
			arrived = arrived.With(i)
		}
	}
	end := wire.Release{Bury: lease.p.bury, Arrived: arrived == all, Cooldown: cooldown, Channel: lease.bucket.Channel, Waiter: lease.quitting()}
	// Whether the attempt became a lease, or has sent a completion: either makes its token known. Neither can come
	// to be after the first release.
	switch {
	case lease.reached != 0:
		end.DropBelow = lease.token // no record with a smaller ballot can be decided any more
	case !lease.completing && !lease.seen:
		end.Undo = true // nobody has seen the token, so the node may give it out again
	}
	// The call goes on waiting, and did so before the attempt.
	if end.Waiter.Name == "" && lease.wait != nil && !lease.quits && lease.reached == 0 && lease.wait.GoesOn() {
		end.Waiter = lease.wait.Name
	}
	lease.mu.Unlock()

	r := lease.round(wire.OpRelease, (*node.Round).Settled)
	r.Must, r.Request = true, lease.lock.Release(end)
	if arrived != 0 && arrived != all {
		end.Arrived = true
		buried, without := r.Request, lease.lock.Release(end)
		r.Each = func(i int) wire.Request {
			if arrived.Has(i) {
				return without
			}
			return buried
		}
	}
	return r
}

// free tells all nodes, without waiting for them, that the lease is over.
func (lease *Lease) free(ctx context.Context) {
	r := lease.releasing(0)
	r.Send(ctx, quorum.All(len(lease.nodes)))
	r.Leave()
}

// repeatEnd tells a node that the attempt is over, if it is still owed that. If it is told again, and that fails, too,
// the lease runs out by itself, and the clock window refuses what is still under way.
func (lease *Lease) repeatEnd(node int) {
	lease.mu.Lock()
	tell, first := lease.nodes[node].due()
	lease.mu.Unlock()
	if !tell {
		lease.e.Tasks.Leave()
		return
	}
	r := lease.releasing(lease.cooldownLeft())
	r.Must, r.OnOver = first, lease.e.Tasks.Leave
	r.Send(context.Background(), quorum.Set(0).With(node)) //nolint:forbidigo // an end is sent whatever became of its caller
}

// offer has all nodes accept a record under a ballot, and reports whether a quorum did: only then is it
// decided. When wait is over it is open what becomes of the record: what was offered may stand.
func (lease *Lease) offer(ctx, wait context.Context, rec *wire.Record, ballot uint64) ([]NodeReply, error) {
	r := lease.offering(rec, ballot, false)
	r.Send(ctx, quorum.All(len(lease.nodes)))
	r.Wait(wait)
	nodes := replies(lease.e.Group, &r.Tally)
	return nodes, fateError(OpComplete, lease.lock.Key, r.Recorded(rec.Token), nodes)
}

// offering is the round that hands a record to nodes and ends the attempt there. A record that is known to be
// decided is accepted by nodes that have promised a later token, or forgotten one, too.
func (lease *Lease) offering(rec *wire.Record, ballot uint64, decided bool) *node.Round {
	lease.mu.Lock()
	lease.completing = true
	each := lease.lock.Complete(len(lease.nodes), func(i int) wire.Complete {
		return wire.Complete{Ballot: ballot, Memory: lease.nodes[i].memory, Rest: rec.Rest, Token: rec.Token, Result: rec.Result, Bury: lease.p.bury,
			Decided: decided, Channel: lease.bucket.Channel, Quits: lease.quitting()}
	})
	lease.mu.Unlock()
	r := lease.round(wire.OpComplete, (*node.Round).RecordDecided)
	r.Must, r.Each, r.Bulk = true, each, len(rec.Result)
	return r
}
