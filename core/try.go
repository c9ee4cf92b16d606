package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	booked   bool // the wait is
	turns    int  // in a row that it shared with others

	lease *Lease // that the nodes were asked for on its behalf; nil = it asks by itself
	asked *node.Round

	recovering bool   // the next attempt settles a completion record that is not decided
	last       result // of the attempt before
	out        Outcome
}

// contend tries until it has a lease or a reason to stop.
func (a *acquisition) contend(ctx, wait context.Context) (*Lease, error) {
	if a.silentForTTL() { // the one before had to find out for all
		return nil, a.fail(a.last.err)
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
		case wait.Err() != nil:
			return nil, a.stopped(ctx)
		case a.e.IsClosing():
			return nil, a.fail(ErrClosed)
		case a.triesAtOnce():
			continue
		case a.givesUp(wait):
			return nil, a.fail(a.last.err)
		}
		told := a.last
		told.nodes = slices.Clone(told.nodes)
		a.e.lines.Fails(a.resource, told)
		a.recovering = a.recovering && a.last.split()
		if !a.sleep(wait) {
			return nil, a.stopped(ctx)
		}
	}
}

// attempted notes how an attempt ended.
func (a *acquisition) attempted(lease *Lease, res result) {
	res.at = a.e.Clock.Now()
	if lease == nil && (res.outcome == quorum.OutOfReach || res.outcome == quorum.Won) {
		res.silent = cmp.Or(a.last.silent, res.at)
	}
	a.ended(res)
	a.out.Nodes = res.nodes
	a.out.Contended = a.out.Contended || errors.Is(res.err, ErrHeld)
	if lease != nil {
		a.out.Token, a.out.Margin = lease.token, lease.left()
	}
}

// triesAtOnce reports whether the next attempt needs no pause: it settles a completion record, once, or uses what
// the last one learnt.
func (a *acquisition) triesAtOnce() bool {
	if a.last.outcome == quorum.Unsettled && !a.recovering {
		a.recovering = true
		return true
	}
	return a.last.again
}

// givesUp reports whether what the nodes said ends the call.
func (a *acquisition) givesUp(wait context.Context) bool {
	return errors.Is(a.last.err, ErrDone) || a.tryOnly && !a.undecided() || a.silentForTTL() || a.outlasted(wait)
}

// outlasted reports whether the key rests for longer than the call may wait.
func (a *acquisition) outlasted(wait context.Context) bool {
	until, ends := wait.Deadline()
	return ends && a.last.rests > 0 && a.last.rests-a.e.Clock.Now().Since(a.last.at) > time.Until(until)
}

// undecided reports whether the votes were split between contenders, so that none of them may have got the key.
func (a *acquisition) undecided() bool {
	return a.last.split() && a.out.Attempts < maxTries
}

// maxTries bounds how often TryAcquire asks while the votes are split.
const maxTries = 5

// silentForTTL reports whether no quorum has been reachable for a full TTL. A holder would have lost its lease by
// then, so a waiter gives up, too.
func (a *acquisition) silentForTTL() bool {
	return a.last.silent != 0 && a.e.Clock.Now().Since(a.last.silent) >= a.p.ttl
}

// join has the nodes listened to for when it is this call's turn.
func (a *acquisition) join() {
	if a.wait != nil && !a.booked {
		a.booked = true
		a.e.waits.Begin(a.wait, a.e.Keys.Bucket(a.key))
	}
}

// try asks all nodes once for the key and settles the outcome. It leaves nothing behind on the nodes
// unless it succeeds.
//
// The order is the protocol's: trust starts before the first request is sent; the token is the greatest
// any granting node gave; it counts only once a quorum stores it while the lease is on those nodes; and the
// clock is looked at last, after every wait.
func (a *acquisition) try(ctx, wait context.Context) (*Lease, result) {
	lease, r := a.ask(ctx)
	r.Wait(wait)
	t := &r.Tally
	won, spoilt := lease.wins(ctx, wait, r)
	switch o := t.Acquired(); {
	case won && o == quorum.Unsettled && a.recovering && lease.trusted(r.Sent):
		return nil, a.adopt(ctx, wait, &lease.attempt, r)
	case won && o == quorum.Won && wait.Err() == nil && lease.start(t, r.Sent):
		return lease, result{nodes: report(a.e.Group, t, a.observed)}
	case o == quorum.Done:
		_, rec := t.DoneVotes()
		return nil, a.done(ctx, &lease.attempt, t, rec.Aged(a.e.Clock.Now().Since(r.Sent)))
	}
	return nil, a.failed(ctx, wait, &lease.attempt, r, spoilt)
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
		return result{err: ErrUnavailable, again: true, nodes: report(a.e.Group, t, true)}
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
	res := result{outcome: o, err: refusals[o], retry: t.RetryAfter(), hint: t.Hint(), nodes: report(a.e.Group, t, true),
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
	return result{err: ErrDone, record: recordOf(rec), nodes: report(a.e.Group, t, true)}
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

// ended notes how an attempt ended, or what those before in line know.
func (a *acquisition) ended(res result) {
	a.last = res
	a.out.HolderHint = cmp.Or(res.hint, a.out.HolderHint)
}

// stopped is the error of an acquisition that something other than the nodes put an end to.
func (a *acquisition) stopped(ctx context.Context) error {
	return a.last.stopped(ctx, a.e, OpAcquire, a.key)
}

func (a *acquisition) fail(err error) *OpError { return a.last.failure(a.e, OpAcquire, a.key, err) }

// maxTurns bounds how often a call asks again at once: turns last for 150 ms at most.
const maxTurns = 50

// sleep waits before the next attempt.
func (a *acquisition) sleep(wait context.Context) bool {
	p := a.p
	if a.turns++; a.last.outcome != quorum.SharedTurn {
		a.turns = 0
	}
	var told <-chan struct{}
	if a.join(); a.wait != nil {
		told = a.wait.Try
	}
	d := a.between(p.retryMin, p.retryMax)
	switch a.last.outcome {
	case quorum.Split, quorum.Unsettled:
		d = a.between(0, p.retryMin)
	case quorum.Quarantined:
		// Not for all of it: another node may come back before.
		d = min(a.last.retry, max(p.retryMax, p.ttl/10)) + a.between(0, p.retryMin)
	case quorum.SharedTurn:
		if d = a.between(0, queue.TellWithin); a.turns > maxTurns { // nobody's
			d = a.between(0, p.retryMin)
		}
	case quorum.Held:
		if a.last.retry > 0 {
			d = min(d, a.last.retry+a.between(0, p.retryMin))
		}
	case quorum.Queued:
		if d = a.between(queue.FallbackMin, queue.FallbackMax); a.last.retry > 0 {
			d = min(d, a.last.retry)
		}
	default: // the nodes are asked again
	}
	return a.pause(wait, d, told)
}

// between is a random time.
func (a *acquisition) between(least, most time.Duration) time.Duration {
	return least + time.Duration(a.e.jitter(int64(most-least)+1))
}

// pause waits for d, or until the call is told to try; it reports false where the call is over.
func (a *acquisition) pause(wait context.Context, d time.Duration, told <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-told:
		return true
	case <-wait.Done():
	case <-a.e.Closing:
	}
	return false
}
