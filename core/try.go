package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// try asks all nodes once for the key and settles the outcome. It leaves nothing behind on the nodes
// unless it succeeds.
//
// The order is the protocol's: trust starts before the first request is sent; the token is the greatest
// any granting node gave; it counts only once a quorum stores it while the lease is on those nodes; and the
// clock is looked at last, after every wait.
func (a *acquisition) try(ctx, wait context.Context) result {
	lease, r := a.ask(ctx)
	r.wait(wait)
	t := &r.tally
	won, spoilt := lease.wins(ctx, wait, r)
	recorded := t.record() != nil
	done, rec := t.doneVotes()
	switch {
	case won && recorded && a.recovering && lease.trusted(r.sent):
		return a.adopt(ctx, wait, &lease.attempt, r)
	case won && !recorded && wait.Err() == nil && lease.start(t, r.sent):
		return result{lease: lease, nodes: a.e.report(t, a.observed)}
	case done >= t.q:
		return a.done(ctx, &lease.attempt, t, rec.Aged(a.e.clock.Now().Since(r.sent)))
	}
	return a.failed(ctx, wait, &lease.attempt, r, spoilt)
}

// ask asks all nodes, unless they were asked on behalf of the call.
func (a *acquisition) ask(ctx context.Context) (lease *Lease, r *round) {
	lease, r = a.lease, a.asked
	if a.lease, a.asked = nil, nil; lease == nil {
		lease = a.newLease()
		r = lease.acquiring(a.recovering)
		r.send(ctx, allNodes(len(a.e.nodes)))
	}
	return lease, r
}

// wins reports whether the grants of a round make a lease, and settles its token. spoilt are later votes of nodes that
// granted. A node that had forgotten the longest lease may have voted too soon: what it granted to those who did not
// bring that along does not count.
func (a *attempt) wins(ctx, wait context.Context, r *round) (won bool, spoilt []reply) {
	t := &r.tally
	if _, _, same := t.sameServer(); same || r.outdated() || t.count(wire.Granted) < t.q {
		return false, nil
	}
	return a.settleToken(ctx, wait, t)
}

// failed ends an attempt that did not get the key, and says why it did not.
func (a *acquisition) failed(ctx, wait context.Context, own *attempt, r *round, spoilt []reply) result {
	t := &r.tally
	if a.wait == nil && t.queued() != 0 {
		a.wait = newWait(own.lock.Waiter(), own.asked, t.q)
	}
	if a.wait == nil && !a.tryOnly {
		own.unqueue() // a node whose answer is missing may have it in its queue, under a name that is not used again
	}
	own.abandon(ctx, wait, t)
	first, second, same := t.sameServer()
	switch {
	case same:
		spoilt = []reply{{vote: said(wire.Failed, fmt.Errorf("%w: it shares its replication history with node %d", errSameServer, first)), node: second}}
	case r.outdated() && t.count(wire.Granted) >= t.q:
		return result{err: ErrUnavailable, again: true, nodes: a.e.report(t, true)}
	}
	for _, later := range spoilt {
		t.votes[later.node] = later.vote
	}
	res := a.refused(t)
	if same {
		res.err = fmt.Errorf("%w: %w", ErrUnavailable, errSameServer)
	}
	return res
}

var errTooSlow = fmt.Errorf("%w: the nodes granted the key, but took longer than the lease can be trusted", ErrUnavailable)

// refused says why the attempt failed.
func (a *acquisition) refused(t *tally) result {
	res := result{err: ErrUnavailable, pause: pauseOutOfReach, retry: t.retryAfter(), nodes: a.e.report(t, true)}
	res.hint = t.hint()
	granted := t.count(wire.Granted)
	res.open = t.voters() < t.q && t.voters()+t.count(wire.Pending) >= t.q
	switch {
	case granted+t.count(wire.Done) >= t.q && t.record() != nil:
		res.err, res.held, res.pause, res.recover = ErrHeld, HeldSplit, pauseSplit, true
	case granted >= t.q:
		res.err = errTooSlow
	case t.voters() >= t.q:
		res.err, res.held, res.rests, res.pause = ErrHeld, t.held(), t.rests(), pauseHeld
		queued := t.queued().len()
		switch {
		case queued+granted >= t.q && granted > 0 && t.split():
			res.pause = pauseTurn
		case queued >= t.q:
			res.pause = pauseQueued
		case t.split():
			res.pause = pauseSplit
		}
	case t.voters()+t.count(wire.Quarantined) >= t.q:
		res.pause = pauseQuarantined
	}
	return res
}

// done reports a key that a quorum agrees is completed, and hands the record to nodes that lack it.
func (a *acquisition) done(ctx context.Context, own *attempt, t *tally, rec *wire.Record) result {
	own.over()
	if lacking := t.lacking(rec); lacking != 0 {
		r := own.offering(rec, rec.Ballot, true)
		r.send(ctx, lacking)
		r.leave()
	}
	return result{err: ErrDone, record: recordOf(rec), nodes: a.e.report(t, true)}
}

// adopt completes what another attempt began to record: the key is done if a quorum confirms that, under
// the token of this attempt. Single-decree Paxos with tokens as ballots: having been granted the key by a
// quorum, this attempt knows every record that can be decided, and the one with the greatest ballot is it.
func (a *acquisition) adopt(ctx, wait context.Context, own *attempt, r *round) result {
	rec := r.record().Aged(a.e.clock.Now().Since(r.sent))
	nodes, err := own.propose(ctx, wait, rec, own.token, true)
	if err == nil {
		own.over()
		return result{err: ErrDone, record: recordOf(rec), nodes: nodes}
	}
	own.abandon(ctx, wait, &r.tally)
	if errors.Is(err, ErrLost) {
		return result{err: ErrHeld, held: HeldSplit, pause: pauseSplit, nodes: nodes}
	}
	return result{err: ErrUnavailable, pause: pauseOutOfReach, nodes: nodes}
}
