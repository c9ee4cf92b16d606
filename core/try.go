package core

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An acquisition is what becomes of a call: a place in the local queue, then attempts until one succeeds.
type acquisition struct {
	call
	observed bool // somebody wants to know its outcome
	turns    int  // in a row that it shared with others

	recovering bool   // the next attempt settles a completion record that is not decided
	last       result // of the attempt before
	out        Outcome
}

// contend tries until it has a lease or a reason to stop.
func (a *acquisition) contend(ctx, wait context.Context) (*Lease, error) {
	if a.silentForTTL() { // the one before had to find out for all
		return nil, a.stopped(ctx)
	}
	for {
		a.out.Attempts++
		if a.wait != nil {
			a.wait.Trying()
		}
		lease, res := a.try(ctx, wait)
		if lease == nil && wait.Err() != nil && a.last.err != nil {
			return nil, a.stopped(ctx) // a round cut short knows less than the one before
		}
		a.attempted(lease, res)
		switch {
		case lease != nil:
			return lease, nil
		case wait.Err() != nil || a.e.IsClosing():
			return nil, a.stopped(ctx)
		case a.last.outcome == quorum.Unsettled && !a.recovering:
			a.recovering = true // the next attempt settles the record, and needs no pause
			continue
		case a.last.again: // at once, with what was learnt
			continue
		case a.givesUp(wait):
			return nil, a.stopped(ctx)
		}
		a.e.lines.Fails(a.resource, a.last)
		a.recovering = a.recovering && a.last.split()
		if !a.sleep(wait) {
			return nil, a.stopped(ctx)
		}
	}
}

// attempted notes how an attempt ended.
func (a *acquisition) attempted(lease *Lease, res result) {
	res.at = a.e.Clock.Now()
	if lease != nil {
		a.out.Token, a.out.Margin = lease.token, lease.left()
	} else if a.out.Nodes = res.nodes; res.outcome == quorum.OutOfReach || res.outcome == quorum.Won {
		res.silent = cmp.Or(a.last.silent, res.at)
	}
	a.ended(res)
	a.out.Contended = a.out.Contended || res.held != HeldUnknown
}

// ended notes how an attempt ended, or what those before in line know.
func (a *acquisition) ended(res result) {
	a.last = res
	a.out.HolderHint = cmp.Or(res.hint, a.out.HolderHint)
}

// stopped is the error of an acquisition that ends without a lease.
func (a *acquisition) stopped(ctx context.Context) error {
	return a.last.stopped(ctx, a.e.Group, OpAcquire, a.key)
}

// maxTries bounds how often TryAcquire asks while the votes are split, so that no contender may have got the key.
const maxTries = 5

// givesUp reports whether what the nodes said ends the call.
func (a *acquisition) givesUp(wait context.Context) bool {
	once := a.tryOnly && (!a.last.split() || a.out.Attempts >= maxTries)
	return once || a.last.err == ErrDone || a.silentForTTL() || a.outlasted(wait) //nolint:errorlint // of the table
}

// outlasted reports whether the key rests for longer than the call may wait.
func (a *acquisition) outlasted(wait context.Context) bool {
	until, ends := wait.Deadline()
	return ends && a.last.rests > 0 && a.last.rests-a.e.Clock.Now().Since(a.last.at) > time.Until(until)
}

// silentForTTL reports whether no quorum has been reachable for a full TTL. A holder would have lost its lease by
// then, so a waiter gives up, too.
func (a *acquisition) silentForTTL() bool {
	return a.last.silent != 0 && a.e.Clock.Now().Since(a.last.silent) >= a.p.ttl
}

// maxTurns bounds how often a call asks again at once: turns last for 150 ms at most.
const maxTurns = 50

// sleep waits before the next attempt, until the nodes tell the call to try.
func (a *acquisition) sleep(wait context.Context) bool {
	if a.turns++; a.last.outcome != quorum.SharedTurn {
		a.turns = 0
	}
	var told <-chan struct{}
	if a.wait != nil {
		a.e.waits.Begin(a.wait, a.e.Bucket(a.key))
		told = a.wait.Try
	}
	least, most := a.last.pause(a.p, a.turns > maxTurns)
	return a.e.Pause(wait, least+time.Duration(a.e.jitter(int64(most-least)+1)), told)
}

// try asks all nodes once for the key and settles the outcome. It leaves nothing behind on the nodes
// unless it succeeds.
//
// The order is the protocol's: trust starts before the first request is sent; the token is the greatest
// any granting node gave; it counts only once a quorum stores it while the lease is on those nodes; and the
// clock is looked at last, after every wait.
func (a *acquisition) try(ctx, wait context.Context) (*Lease, result) {
	lease, r := a.lease, a.asked // on behalf of the call, which asks by itself otherwise
	if a.lease, a.asked = nil, nil; lease == nil {
		lease = a.newLease()
		r = lease.acquiring(a.recovering)
		r.Send(ctx, quorum.All(len(a.e.Nodes)))
	}
	r.Wait(wait)
	t := &r.Tally
	won, spoilt := lease.wins(ctx, wait, r)
	switch o := t.Acquired(); {
	case won && o == quorum.Unsettled && a.recovering && r.Sent.Add(a.p.validity-a.p.margin) > a.e.Clock.Now():
		return nil, a.adopt(ctx, wait, lease, r)
	case won && o == quorum.Won && wait.Err() == nil && lease.start(t, r.Sent):
		if a.observed {
			a.out.Nodes = replies(a.e.Group, t)
		}
		return lease, result{}
	case o == quorum.Done:
		_, rec := t.DoneVotes()
		return nil, a.done(ctx, lease, t, rec.Aged(a.e.Clock.Now().Since(r.Sent)))
	}
	return nil, a.failed(ctx, wait, lease, r, spoilt)
}

// failed ends an attempt that did not get the key, and says why it did not.
func (a *acquisition) failed(ctx, wait context.Context, own *Lease, r *node.Round, spoilt []node.Reply) result {
	t := &r.Tally
	switch {
	case a.wait != nil || a.tryOnly:
	case t.Queued() != 0:
		a.wait = queue.NewWaiter(own.lock.Waiter(), own.asked, t.Q)
	default:
		own.unqueue() // a node whose answer is missing may have it in its queue, under a name that is not used again
	}
	own.abandon(ctx, wait, t)
	if r.Outdated() && t.Count(wire.Granted) >= t.Q {
		return result{err: ErrUnavailable, again: true, nodes: replies(a.e.Group, t)}
	}
	for _, later := range spoilt {
		t.Votes[later.Node] = later.Vote
	}
	return refused(a.e.Group, t)
}

// done reports a key that a quorum agrees is completed, and hands the record to nodes that lack it.
func (a *acquisition) done(ctx context.Context, own *Lease, t *quorum.Tally, rec *wire.Record) result {
	own.over()
	if lacking := t.Lacking(rec); lacking != 0 {
		r := own.offering(rec, rec.Ballot, true)
		r.Send(ctx, lacking)
		r.Leave()
	}
	return result{err: ErrDone, record: recordOf(rec), nodes: replies(a.e.Group, t)}
}

// adopt completes what another attempt began to record: the key is done if a quorum confirms that, under
// the token of this attempt. Single-decree Paxos with tokens as ballots: having been granted the key by a
// quorum, this attempt knows every record that can be decided, and the one with the greatest ballot is it.
func (a *acquisition) adopt(ctx, wait context.Context, own *Lease, r *node.Round) result {
	rec := r.Record().Aged(a.e.Clock.Now().Since(r.Sent))
	nodes, err := own.offer(ctx, wait, rec, own.token)
	if err == nil {
		own.over()
		return result{err: ErrDone, record: recordOf(rec), nodes: nodes}
	}
	own.abandon(ctx, wait, &r.Tally)
	if errors.Is(err, ErrLost) {
		return result{outcome: quorum.Split, err: ErrHeld, held: HeldSplit, nodes: nodes}
	}
	return result{outcome: quorum.OutOfReach, err: ErrUnavailable, nodes: nodes}
}

// How an attempt ends on the nodes, as a lease or without having become one. A node that is late is told only where it
// turns out to have granted, which saves a tenth of the requests of an acquisition on three nodes: 3.0 for 3.3.

// abandon ends an attempt that did not become a lease: what nodes granted or may still grant is released. Where none
// granted, those that have not answered need not be told yet. The call keeps its place in their queues until wait is
// over. abandon waits for the nodes that granted, because the next attempt would find its own traces there; not for a
// caller who has given up.
func (lease *Lease) abandon(ctx, wait context.Context, t *quorum.Tally) {
	touched, granted := t.MayHold(), t.With(wire.Granted)
	lease.mu.Lock()
	lease.ended = true
	lease.seen = lease.seen || touched.Len() >= quorum.Of(len(lease.nodes))
	lease.quits = lease.quits || lease.wait != nil && wait.Err() != nil
	lease.mu.Unlock()
	if granted == 0 && !lease.quits && wait.Err() == nil {
		touched &^= lease.awaiting(t.Unanswered())
	}
	r := lease.releasing(0)
	r.Decided = func(r *node.Round) bool { return granted&r.Unanswered() == 0 }
	r.Send(ctx, touched)
	if granted == 0 {
		r.Leave()
	} else {
		r.Wait(wait)
	}
}

// awaiting are those of the nodes that will most likely answer yet that they did not grant the attempt, or have. If
// they did, or do not answer within the node timeout, they are told then that it is over.
func (lease *Lease) awaiting(nodes quorum.Set) (s quorum.Set) {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	for i := range lease.nodes {
		n := &lease.nodes[i]
		if !nodes.Has(i) || n.expiry != 0 {
			continue
		}
		if n.unanswered > 0 {
			lease.tellLater(i, owedLater, lease.p.nodeTimeout)
		}
		if n.unanswered == 0 || n.owed == owedLater {
			s = s.With(i)
		}
	}
	return s
}
