package core

import (
	"context"
	"errors"
	"fmt"
)

// try asks all nodes once for the key and settles the outcome. It leaves nothing behind on the nodes
// unless it succeeds.
//
// The order is the protocol's: trust starts before the first request is sent; the token is the greatest
// any granting node gave; it counts only once a quorum stores it while the lease is on those nodes; and the
// clock is looked at last, after every wait.
func (a *acquisition) try(ctx, wait context.Context) result {
	e := a.e
	lease, r := a.lease, a.asked
	if a.lease, a.asked = nil, nil; lease == nil {
		lease = a.newLease()
		r = lease.acquiring(a.recovering)
		r.send(ctx, allNodes(len(e.nodes)))
	}
	r.wait(wait)
	t := &r.tally
	touched, granted, late := t.mayHold(), t.granted(), t.unheard() // before the votes on the token replace those on the key

	first, second, same := t.sameServer()
	if same {
		t.votes[second] = vote{verdict: VerdictFailed, err: fmt.Errorf("%w: it shares its replication history with node %d", errSameServer, first)}
	}
	// A node that had forgotten the longest lease may have voted too soon: what it granted to those who did not
	// bring that along does not count.
	longer := t.heardLonger()
	won := !same && !longer && t.count(VerdictGranted) >= t.q && lease.settleToken(ctx, wait, t)
	recorded := t.record() != nil
	if won && recorded && a.recovering && lease.trusted(r.sent) {
		return a.adopt(ctx, wait, &lease.attempt, t, touched, r.sent)
	}
	if won && !recorded && wait.Err() == nil && lease.start(t, r.sent) {
		return result{lease: lease, nodes: e.report(t, a.observed)}
	}
	if done, rec := t.doneVotes(); done >= t.q {
		return a.done(ctx, &lease.attempt, t, rec.aged(e.clock.now().since(r.sent)))
	}
	if a.wait == nil && t.queued() > 0 {
		a.wait = newWait(lease.id, r.args[proposalArg(r.args)], t.q)
	}
	if a.wait == nil && !a.tryOnly {
		lease.unqueue() // a node whose answer is missing may have it in its queue, under a name that is not used again
	}
	lease.abandon(ctx, wait, touched, granted, late)
	if longer && t.count(VerdictGranted) >= t.q {
		return result{err: ErrUnavailable, again: true, nodes: e.report(t, true)}
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
	a.noteHolder(t.hint())
	granted := t.count(VerdictGranted)
	res.open = t.voters() < t.q && t.voters()+t.count(VerdictPending) >= t.q
	switch {
	case granted+t.count(VerdictDone) >= t.q && t.record() != nil:
		res.err, res.pause, res.recover = ErrHeld, pauseSplit, true
	case granted >= t.q:
		res.err = errTooSlow
	case t.voters() >= t.q:
		res.err, res.pause, res.kept = ErrHeld, pauseHeld, t.kept()
		queued := t.queued()
		res.place = t.place()
		switch {
		case queued+granted >= t.q && granted > 0 && t.split():
			res.pause = pauseTurn
		case queued >= t.q:
			res.pause = pauseQueued
		case t.split():
			res.pause = pauseSplit
		}
	case t.voters()+t.count(VerdictQuarantined) >= t.q:
		res.pause = pauseQuarantined
	}
	return res
}

// done reports a key that a quorum agrees is completed, and hands the record to nodes that lack it.
func (a *acquisition) done(ctx context.Context, own *attempt, t *tally, rec *nodeRecord) result {
	own.over()
	if lacking := t.lacking(rec); lacking != 0 {
		r := own.offering(rec, rec.ballot, true)
		r.send(ctx, lacking)
		r.leave()
	}
	return result{err: ErrDone, record: rec.clone(), nodes: a.e.report(t, true)}
}

// adopt completes what another attempt began to record: the key is done if a quorum confirms that, under
// the token of this attempt. Single-decree Paxos with tokens as ballots: having been granted the key by a
// quorum, this attempt knows every record that can be decided, and the one with the greatest ballot is it.
func (a *acquisition) adopt(ctx, wait context.Context, own *attempt, t *tally, touched nodeSet, sent instant) result {
	rec := t.record().aged(a.e.clock.now().since(sent))
	nodes, err := own.propose(ctx, wait, rec, own.token, true)
	if err == nil {
		own.over()
		return result{err: ErrDone, record: rec.clone(), nodes: nodes}
	}
	own.abandon(ctx, wait, touched, t.granted(), 0)
	if errors.Is(err, ErrLost) {
		return result{err: ErrHeld, pause: pauseSplit, nodes: nodes}
	}
	return result{err: ErrUnavailable, pause: pauseOutOfReach, nodes: nodes}
}
