package core

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
)

// A call is one call of Acquire or TryAcquire. It has the values that its attempts have in common.
type call struct {
	e            *engine
	p            *policy
	key          string
	resource     string          // the key's name in Redis, and in the local queue
	parent       context.Context // the caller's
	shared       context.Context // the context that all leases of a set have in common; nil for a lease by itself
	cancelShared context.CancelCauseFunc
	tryOnly      bool
	metadata     string        // the note, name and hint that the lease carries
	waitingSince time.Time     // when the call joined the local queue, or its operation began; zero if it got the turn at once
	waiter       *queue.Waiter // the call in the queues of the nodes; nil until an attempt has failed

	// callbacks orders the background calls of the observer for all attempts and for the lease. It is nil until there
	// is an attempt.
	callbacks *callback.Queue

	// The first request of the next caller in the local queue leaves with another caller's release. Then prefetched and
	// prefetchedRound are its attempt and its round. They are nil if the call makes its own.
	prefetched      *attempt
	prefetchedRound *node.Round
}

// newAttempt returns an attempt under a new name. It records the memory of each node now, before the first request is
// sent.
//
// The attempt and the lease that it may become are one allocation.
func (c *call) newAttempt() *attempt {
	lease := &Lease{
		attempt: attempt{
			e:        c.e,
			bucket:   c.e.Bucket(c.key),
			p:        c.p,
			lock:     c.e.Keys.Lock(c.key, c.resource, c.e.attemptCount.Add(1)),
			metadata: c.metadata,
			canWait:  !c.tryOnly,
		},
		term: term{clock: c.e.Clock, holdUntil: clock.Never},
	}
	lease.ctx.lease = lease
	lease.ctx.parent = c.parent
	if c.shared != nil {
		lease.ctx.Context = c.shared
		lease.cancel = c.cancelShared
	}

	a := &lease.attempt
	a.lease = lease
	if c.callbacks == nil {
		c.callbacks = &lease.callbacks
	}
	a.callbacks = c.callbacks

	a.nodes = slices.Grow(a.inlineNode[:0], len(c.e.Nodes))
	for i := range c.e.Nodes {
		a.nodes = append(a.nodes, nodeState{memory: a.bucket.Memory(i)})
	}

	// A call that had to wait in the local queue enters the queues of the nodes with its first attempt.
	isFirstAfterWait := c.waiter == nil && !c.waitingSince.IsZero()
	if a.canWait && isFirstAfterWait {
		since := wire.StampOf(c.waitingSince)
		c.waiter = queue.NewWaiter(a.lock.Waiter(), since, quorum.Of(len(c.e.Nodes)))
	}
	a.waiter = c.waiter
	if a.waiter != nil {
		a.place = queued
	}
	return a
}

// An acquisition is a call in progress. It waits for the key's turn in this process, and then makes attempts until one
// becomes a lease or there is a reason to stop. Only the goroutine of the call uses it.
type acquisition struct {
	call
	observed    bool // an observer wants the outcome
	sharedTurns int  // number of consecutive attempts whose turn was shared with other calls

	recovering bool    // the next attempt settles an undecided completion record
	last       refusal // why the last attempt failed: of this call, or of an earlier call in the local queue
	out        Outcome // for the observer
}

// run acquires the key. If it fails, it leaves nothing behind, neither in the local queue nor in the queues of the
// nodes.
func (a *acquisition) run(ctx context.Context) (*Lease, error) {
	isLimited := a.p.maxWait > 0 && !a.tryOnly
	if !isLimited {
		return a.runUntil(ctx, ctx)
	}

	waitCtx, cancel := context.WithTimeout(ctx, a.p.maxWait)
	var unreturned *Lease
	isOver := false
	defer func() {
		if !isOver { // a method of the caller's context has panicked
			unreturned.Release(ctx)
			cancel()
		}
	}()

	lease, err := a.runUntil(ctx, waitCtx)
	unreturned = lease
	cancel() // calls methods of the caller's context
	isOver = true
	return lease, err
}

// runUntil is run with an end of the wait that the caller has set: the end of waitCtx, which is derived from ctx.
func (a *acquisition) runUntil(ctx, waitCtx context.Context) (*Lease, error) {
	e := a.e
	if ctx.Err() != nil {
		return nil, a.stopError(ctx)
	}

	// From here on, Close waits for this call.
	admitted := e.gate.Enter()
	if !admitted {
		return nil, a.stopError(ctx)
	}
	defer e.gate.Leave()

	return a.runWithin(ctx, waitCtx)
}

// runWithin is runUntil for a call that Close waits for already.
func (a *acquisition) runWithin(ctx, waitCtx context.Context) (lease *Lease, err error) {
	entered := a.enterLocalQueue(ctx, waitCtx)
	if !entered {
		return nil, a.stopError(ctx)
	}

	// endWait is deferred, because the caller's context is user code and may panic.
	defer func() { a.endWait(ctx, lease != nil) }()
	return a.contend(ctx, waitCtx)
}

// enterLocalQueue waits for the key's turn in this process, and reports whether the call got it.
func (a *acquisition) enterLocalQueue(ctx, waitCtx context.Context) bool {
	e := a.e
	first := e.localQueue.TryEnter(a.resource)
	if first {
		return true
	}

	a.out.Contended = true
	a.setLast(e.localQueue.Blocker(a.resource))
	if a.tryOnly || a.cooldownExceedsWait(waitCtx) {
		return false
	}

	began := e.Clock.Now()
	if a.waitingSince.IsZero() {
		a.waitingSince = time.Now()
	}

	// The closure runs on the goroutine of the caller that passes the turn on. It uses a copy of the call, so that the
	// acquisition stays on the stack.
	next := a.call
	turn := &queue.Turn{Request: func(release *node.Round) {
		next.prefetched = next.newAttempt()
		next.prefetchedRound = next.prefetched.newAcquireRound(false)
		next.prefetchedRound.Begin(ctx, quorum.All(len(e.Nodes)))
		node.Dispatch(release, next.prefetchedRound)
	}}
	entered := e.localQueue.Enter(waitCtx, e.Closing.Done(), a.resource, turn)
	a.call = next

	// An earlier caller may have found that no quorum can be reached. For this call, the outage counts from its
	// beginning.
	a.setLast(e.localQueue.Blocker(a.resource))
	if a.last.silentSince != 0 {
		a.last.silentSince = max(a.last.silentSince, began)
	}
	return entered
}

// endWait ends the waiting. Without a lease, it also removes the call from the queues of the nodes and passes the turn in this
// process on. A lease does both with its release.
func (a *acquisition) endWait(ctx context.Context, leased bool) {
	e := a.e
	if a.waiter != nil {
		a.waiter.End()
		e.board.Remove(a.waiter)
	}
	if leased {
		return
	}

	// The call does not wait until the nodes have removed it from their queues. If a node does not remove it, later
	// waiters wait once for a turn that is not used.
	if a.waiter != nil {
		leaving := a.newAttempt() // asks for nothing; its release carries the name of the waiter
		leaving.leaveQueues()
		leaving.releaseAll(ctx)
	}
	e.localQueue.PassOn(a.resource)
}

// contend makes attempts until one becomes a lease or there is a reason to stop.
func (a *acquisition) contend(ctx, waitCtx context.Context) (*Lease, error) {
	// An earlier caller in the local queue may have found that no quorum can be reached. This holds for all callers.
	if a.silentForTTL() {
		return nil, a.stopError(ctx)
	}

	for {
		a.out.Attempts++
		if a.waiter != nil {
			a.waiter.BeginAttempt()
		}

		lease, refused := a.try(ctx, waitCtx)
		cutShort := lease == nil && waitCtx.Err() != nil
		if cutShort && a.last.err != nil {
			// The round that was cut short knows less than the one before.
			return nil, a.stopError(ctx)
		}
		a.recordAttempt(lease, refused)

		switch {
		case lease != nil:
			return lease, nil
		case waitCtx.Err() != nil || a.e.IsClosing():
			return nil, a.stopError(ctx)
		case a.last.outcome == quorum.Unsettled && !a.recovering:
			// The next attempt settles the record. It needs no pause.
			a.recovering = true
			continue
		case a.last.retryNow:
			continue
		case a.shouldStop(waitCtx):
			return nil, a.stopError(ctx)
		}

		// Callers that wait in this process learn why the attempt failed.
		a.e.localQueue.SetLast(a.resource, a.last)
		a.recovering = a.recovering && a.last.isSplit()

		slept := a.sleep(waitCtx)
		if !slept {
			return nil, a.stopError(ctx)
		}
	}
}

// try makes one attempt. Unless it succeeds, the nodes that granted it the key are released; the call may keep its place in
// their queues.
//
// The protocol requires the order of the steps. Trust starts before the first request is sent. The token is the
// greatest that a granting node gave, and counts only once a quorum stores it while the lease is on those nodes. The
// clock is read last, after every wait.
func (a *acquisition) try(ctx, waitCtx context.Context) (*Lease, refusal) {
	// Trust begins with the round, which the release of the previous holder may have sent already: the nodes count the TTL
	// from a later moment.
	own, r := a.startRound(ctx)
	r.Wait(waitCtx)

	// The token must be settled before the lease starts, because the lease must not show a token that a later holder
	// could get, too. Writing it to the nodes may take a round, and may show that a node does not have the lease any
	// more.
	settled, lostVotes := own.settleToken(ctx, waitCtx, r)

	t := &r.Tally
	outcome := t.AcquireOutcome()
	switch {
	case outcome == quorum.Done:
		// A record counts whether or not the grants make a lease: the key must not be granted again.
		_, rec := t.CountDone()
		rec = rec.Aged(a.e.Clock.Now().Since(r.Sent))
		return nil, a.refuseDone(ctx, own, t, rec)
	case settled && outcome == quorum.Unsettled && a.recovering && a.trustsGrants(r.Sent):
		// Only a quorum of grants that are still trusted may settle a record.
		return nil, a.adoptRecord(ctx, waitCtx, own, r)
	case settled && outcome == quorum.Won && waitCtx.Err() == nil:
		// start reads the clock after all waits. It fails if no trusted time is left, or if the Locker is closing.
		started := own.lease.start(t, r.Sent)
		if !started {
			break
		}
		if a.observed {
			a.out.Nodes = replies(a.e.Group, t)
		}
		return own.lease, refusal{}
	}

	return nil, a.endFailed(ctx, waitCtx, own, r, lostVotes)
}

// trustsGrants reports whether grants of a round that began at sent can still be trusted.
func (a *acquisition) trustsGrants(sent clock.Instant) bool {
	return sent.Add(a.p.validity-a.p.margin) > a.e.Clock.Now()
}

// startRound returns a new attempt and the round that asks all nodes for the key. The round may have left already, with
// another caller's release.
func (a *acquisition) startRound(ctx context.Context) (*attempt, *node.Round) {
	own, r := a.prefetched, a.prefetchedRound
	a.prefetched = nil
	a.prefetchedRound = nil

	if own == nil {
		own = a.newAttempt()
		r = own.newAcquireRound(a.recovering)
		r.Send(ctx, quorum.All(len(a.e.Nodes)))
	}
	return own, r
}

// endFailed ends an attempt that did not get the key, and returns the refusal. lostVotes replace the grants of nodes
// that no longer have the lease, or may not have it.
func (a *acquisition) endFailed(
	ctx, waitCtx context.Context, own *attempt, r *node.Round, lostVotes []node.Reply,
) refusal {
	t := &r.Tally

	// Before abandon releases the key, decide whether the call keeps its place in the queues of the nodes.
	switch {
	case a.waiter != nil || a.tryOnly: // it has a waiter already, or never waits
	case t.Queued() != 0:
		a.waiter = queue.NewWaiter(own.lock.Waiter(), own.requestedAt, t.Q)
	default:
		// A node that has not answered may have queued the call, under a name that is not used again.
		own.leaveQueues()
	}
	own.abandon(ctx, waitCtx, t)

	// A node reported a longer max TTL. The grants do not count, and the next request names that TTL.
	outdated := r.IsOutdated() && t.Count(wire.Granted) >= t.Q
	if outdated {
		return refusal{err: ErrUnavailable, retryNow: true, nodes: replies(a.e.Group, t)}
	}

	for _, lost := range lostVotes {
		t.Votes[lost.Node] = lost.Vote
	}

	return refusalOf(a.e.Group, t)
}

// refuseDone returns the refusal of a completed key, and sends the record to nodes that lack it. These nodes may have queued
// the call. Unless endWait removes it from their queues, this request does.
func (a *acquisition) refuseDone(ctx context.Context, own *attempt, t *quorum.Tally, rec *wire.Record) refusal {
	if a.waiter == nil && !a.tryOnly {
		own.leaveQueues()
	} else {
		own.markOver()
	}

	lacking := t.Lacking(rec)
	if lacking != 0 {
		r := own.newCompleteRound(rec, rec.Ballot, true)
		r.Send(ctx, lacking)
		r.Abandon()
	}

	return refusal{err: ErrDone, record: recordOf(rec), nodes: replies(a.e.Group, t)}
}

// adoptRecord completes the key with a record that another attempt began to write. The key is completed if a quorum
// accepts the record under the token of this attempt.
//
// This is single-decree Paxos with tokens as ballots. A quorum granted the key to this attempt, so this quorum knows
// every record that can be decided. The record with the greatest ballot is the one to propose.
func (a *acquisition) adoptRecord(ctx, waitCtx context.Context, own *attempt, r *node.Round) refusal {
	rec := r.Record().Aged(a.e.Clock.Now().Since(r.Sent))
	nodes, err := own.offerRecord(ctx, waitCtx, rec, own.token)
	if err == nil {
		own.markOver()
		return refusal{err: ErrDone, record: recordOf(rec), nodes: nodes}
	}

	own.abandon(ctx, waitCtx, &r.Tally)
	if errors.Is(err, ErrLost) {
		return refusal{outcome: quorum.Split, err: ErrHeld, heldKind: HeldSplit, nodes: nodes}
	}
	return refusal{outcome: quorum.OutOfReach, err: ErrUnavailable, nodes: nodes}
}

// recordAttempt records the result of an attempt.
func (a *acquisition) recordAttempt(lease *Lease, refused refusal) {
	refused.at = a.e.Clock.Now()
	if lease != nil {
		a.out.Token = lease.FencingToken()
		a.out.Margin = lease.remaining()
	} else {
		a.out.Nodes = refused.nodes
		noQuorum := refused.outcome == quorum.OutOfReach || refused.outcome == quorum.Won
		if noQuorum {
			refused.silentSince = cmp.Or(a.last.silentSince, refused.at)
		}
	}

	a.setLast(refused)
	a.out.Contended = a.out.Contended || refused.heldKind != HeldUnknown
}

// setLast records why the last attempt failed: an attempt of this call, or of an earlier call in the local queue.
func (a *acquisition) setLast(refused refusal) {
	a.last = refused
	a.out.HolderHint = cmp.Or(refused.hint, a.out.HolderHint)
}

// stopError returns the error of an acquisition that stops without a lease.
func (a *acquisition) stopError(ctx context.Context) error {
	return a.last.stopError(ctx, a.e.Group, OpAcquire, a.key)
}

// maxTries limits the attempts of TryAcquire while the votes are split, so that no contender may have got the key.
const maxTries = 5

// shouldStop reports whether the answers of the nodes end the call.
func (a *acquisition) shouldStop(waitCtx context.Context) bool {
	if a.tryOnly {
		mayRetry := a.last.isSplit() && a.out.Attempts < maxTries
		if !mayRetry {
			return true
		}
	}

	done := a.last.err == ErrDone //nolint:errorlint // refusalErrors has the sentinel itself
	return done || a.silentForTTL() || a.cooldownExceedsWait(waitCtx)
}

// cooldownExceedsWait reports whether the key's cooldown lasts longer than the call may wait.
func (a *acquisition) cooldownExceedsWait(waitCtx context.Context) bool {
	until, ends := waitCtx.Deadline()
	if !ends || a.last.cooldown <= 0 {
		return false
	}

	left := a.last.cooldown - a.e.Clock.Now().Since(a.last.at)
	return left > time.Until(until)
}

// silentForTTL reports whether no quorum could be reached for a full TTL. A holder would have lost its lease by then,
// so a waiter gives up, too.
func (a *acquisition) silentForTTL() bool {
	isSilent := a.last.silentSince != 0
	return isSilent && a.e.Clock.Now().Since(a.last.silentSince) >= a.p.ttl
}

// maxSharedTurns limits how often a call asks again at once, because a turn lasts for at most 150 ms.
const maxSharedTurns = 50

// sleep pauses before the next attempt, until the nodes notify the call. It reports false when the wait is over.
func (a *acquisition) sleep(waitCtx context.Context) bool {
	a.sharedTurns++
	if a.last.outcome != quorum.SharedTurn {
		a.sharedTurns = 0
	}

	var notified <-chan struct{}
	if a.waiter != nil {
		a.e.board.Add(a.waiter, a.e.Bucket(a.key))
		notified = a.waiter.Wake
	}

	least, most := a.last.pauseRange(a.p, a.sharedTurns > maxSharedTurns)
	pause := least + time.Duration(a.e.jitter(int64(most-least)+1))
	return a.e.Pause(waitCtx, pause, notified)
}
