package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
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
	r.Wait(wait)
	t := &r.Tally
	won, spoilt := lease.wins(ctx, wait, r)
	switch o := t.Acquired(); {
	case won && o == quorum.Unsettled && a.recovering && lease.trusted(r.Sent):
		return a.adopt(ctx, wait, &lease.attempt, r)
	case won && o == quorum.Won && wait.Err() == nil && lease.start(t, r.Sent):
		return result{lease: lease, nodes: a.e.report(t, a.observed)}
	case o == quorum.Done:
		_, rec := t.DoneVotes()
		return a.done(ctx, &lease.attempt, t, rec.Aged(a.e.Clock.Now().Since(r.Sent)))
	}
	return a.failed(ctx, wait, &lease.attempt, r, spoilt)
}

// ask asks all nodes, unless they were asked on behalf of the call.
func (a *acquisition) ask(ctx context.Context) (lease *Lease, r *node.Round) {
	lease, r = a.lease, a.asked
	if a.lease, a.asked = nil, nil; lease == nil {
		lease = a.newLease()
		r = lease.acquiring(a.recovering)
		r.Send(ctx, quorum.All(len(a.e.Nodes)))
	}
	return lease, r
}

// wins reports whether the grants of a round make a lease, and settles its token. spoilt are later votes of nodes that
// granted. A node that had forgotten the longest lease may have voted too soon: what it granted to those who did not
// bring that along does not count.
func (a *attempt) wins(ctx, wait context.Context, r *node.Round) (won bool, spoilt []node.Reply) {
	t := &r.Tally
	if _, _, same := t.SameServer(); same || r.Outdated() || t.Count(wire.Granted) < t.Q {
		return false, nil
	}
	return a.settleToken(ctx, wait, t)
}

// failed ends an attempt that did not get the key, and says why it did not.
func (a *acquisition) failed(ctx, wait context.Context, own *attempt, r *node.Round, spoilt []node.Reply) result {
	t := &r.Tally
	if a.wait == nil && t.Queued() != 0 {
		a.wait = queue.NewWaiter(own.lock.Waiter(), own.asked, t.Q)
	}
	if a.wait == nil && !a.tryOnly {
		own.unqueue() // a node whose answer is missing may have it in its queue, under a name that is not used again
	}
	own.abandon(ctx, wait, t)
	first, second, same := t.SameServer()
	switch {
	case same:
		spoilt = []node.Reply{{Vote: quorum.Said(wire.Failed, fmt.Errorf("%w: it shares its replication history with node %d", node.ErrSameServer, first)), Node: second}}
	case r.Outdated() && t.Count(wire.Granted) >= t.Q:
		return result{err: ErrUnavailable, again: true, nodes: a.e.report(t, true)}
	}
	for _, later := range spoilt {
		t.Votes[later.Node] = later.Vote
	}
	res := a.refused(t)
	if same {
		res.err = fmt.Errorf("%w: %w", ErrUnavailable, node.ErrSameServer)
	}
	return res
}

var errTooSlow = fmt.Errorf("%w: the nodes granted the key, but took longer than the lease can be trusted", ErrUnavailable)

// refusals are the errors of an attempt that ended so.
var refusals = [...]error{quorum.Held: ErrHeld, quorum.Queued: ErrHeld, quorum.SharedTurn: ErrHeld, quorum.Split: ErrHeld, quorum.Unsettled: ErrHeld,
	quorum.Quarantined: ErrUnavailable, quorum.OutOfReach: ErrUnavailable, quorum.Done: ErrDone, quorum.Won: errTooSlow}

// refused says why the attempt failed.
func (a *acquisition) refused(t *quorum.Tally) result {
	o := t.Acquired()
	res := result{outcome: o, err: refusals[o], retry: t.RetryAfter(), hint: t.Hint(), nodes: a.e.report(t, true),
		open: t.Voters() < t.Q && t.Voters()+t.Count(wire.Pending) >= t.Q}
	switch {
	case o == quorum.Unsettled:
		res.held = HeldSplit
	case res.err == ErrHeld: //nolint:errorlint // of the table
		res.held, res.rests = heldAs(t), t.Rests()
	}
	return res
}

// done reports a key that a quorum agrees is completed, and hands the record to nodes that lack it.
func (a *acquisition) done(ctx context.Context, own *attempt, t *quorum.Tally, rec *wire.Record) result {
	own.over()
	if lacking := t.Lacking(rec); lacking != 0 {
		r := own.offering(rec, rec.Ballot, true)
		r.Send(ctx, lacking)
		r.Leave()
	}
	return result{err: ErrDone, record: recordOf(rec), nodes: a.e.report(t, true)}
}

// adopt completes what another attempt began to record: the key is done if a quorum confirms that, under
// the token of this attempt. Single-decree Paxos with tokens as ballots: having been granted the key by a
// quorum, this attempt knows every record that can be decided, and the one with the greatest ballot is it.
func (a *acquisition) adopt(ctx, wait context.Context, own *attempt, r *node.Round) result {
	rec := r.Record().Aged(a.e.Clock.Now().Since(r.Sent))
	nodes, err := own.propose(ctx, wait, rec, own.token, true)
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

// A result is how one attempt ended: a lease, or why there is none.
type result struct {
	lease   *Lease
	outcome quorum.Outcome // of one that failed
	err     error          // sentinel
	held    HeldKind
	hint    string        // of the holder that is in the way
	at      clock.Instant // when it ended
	retry   time.Duration // from then on
	rests   time.Duration // from then on nobody gets the key for so long
	record  *Record
	nodes   []NodeReply
	silent  clock.Instant // since when no quorum has been reachable; 0 = one is
	again   bool          // try again at once, with what was learnt
	open    bool          // nodes that have not answered might have made it another
}

// split reports whether a short random time may break the tie.
func (r *result) split() bool { return r.outcome == quorum.Split || r.outcome == quorum.Unsettled }

// forWaiter is why a key is not had whose turn somebody else has, behind a holder with that hint.
func forWaiter(hint string) result { return result{err: ErrHeld, held: HeldForWaiter, hint: hint} }
