package cronlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

const (
	// dueTolerance is how early a call for a tick may come.
	dueTolerance = 50 * time.Millisecond
	// maxSpread limits the random delay by which a replica leaves a tick to the others.
	maxSpread = 50 * time.Millisecond
	// maxKeyWait limits the wait for a key: the job's, which a poll of another replica may hold, or a record's.
	maxKeyWait = 3 * time.Second
	// maxTicksUnderLease is how many ticks are read while holding the job's lease. If there are more, they are read
	// before.
	maxTicksUnderLease = 10
)

var errPollTimeout = fmt.Errorf("%w in time: the look took as long as the TTL", core.ErrUnavailable)

// claimDueTick polls the job: it finds the tick to start, and acquires the job's lease for it. The claims of a job do
// this one after another. The requests of one poll end after a TTL; the next poll need not repeat those that were
// answered.
func (c *claim) claimDueTick() error {
	j := c.job
	ctx, stop := join.Contexts(c.ctx, j.removed)
	defer stop()

	// The engine does not poll while a claim does.
	j.polling.Add(1)
	defer j.polling.Add(-1)

	if err := acquireSlot(ctx, j.pollSlot); err != nil {
		return err
	}
	defer releaseSlot(j.pollSlot)

	if err := c.waitForTick(ctx); err != nil {
		return err
	}

	// Jobs that are due at the same time must not overload the nodes.
	if err := acquireSlot(ctx, j.service.pollSlots); err != nil {
		return err
	}
	defer releaseSlot(j.service.pollSlots)

	pollCtx, cancel := context.WithTimeout(ctx, j.service.locker.TTL())
	defer cancel()
	err := c.poll(pollCtx)
	if err == nil {
		return nil
	}

	isTimeout := pollCtx.Err() != nil && ctx.Err() == nil
	if isTimeout {
		return errPollTimeout
	}
	return err
}

// poll checks the records of the latest tick, acquires the job's lease, and chooses the tick to start.
func (c *claim) poll(ctx context.Context) error {
	if err := c.checkRecords(ctx); err != nil {
		return err
	}
	if err := c.acquireLease(ctx, c.job.service.locker.TryAcquire); err != nil {
		return err
	}
	return c.chooseTick(ctx)
}

// acquireSlot waits for a slot, or until ctx ends. The capacity of slots is how many callers may have one at a time.
func acquireSlot(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func releaseSlot(slots chan struct{}) { <-slots }

// waitForTick waits until the latest tick is due by the nodes' clocks. Without an elector it then waits for a random
// moment more, so that the replicas share the ticks. It fails if this process knows that there is nothing to start.
func (c *claim) waitForTick(ctx context.Context) error {
	j := c.job
	tick, next, err := c.waitUntilDue(ctx)
	if err != nil {
		return err
	}

	if err := j.skipReason(tick); err != nil {
		c.pollIfDueSoon(tick, next)
		return err
	}

	// A random delay, so that not always the same replica gets the job.
	isShared := j.service.elector == nil && !next.IsZero()
	if !isShared {
		return nil
	}
	delay := rand.N(min(next.Sub(tick)/20, maxSpread) + 1)
	if !pause.For(ctx, delay) {
		return context.Cause(ctx)
	}
	return nil
}

// waitUntilDue makes the latest tick the claim's, and waits until it is due by the nodes' clocks: at most dueTolerance.
// It returns the tick and the one that follows.
func (c *claim) waitUntilDue(ctx context.Context) (tick, next time.Time, err error) {
	now := c.job.service.now()
	tick, next = c.job.latest(now.Add(dueTolerance))
	c.entry = entry{tick: tick, startLimit: c.job.startLimit}
	if tick.IsZero() {
		return tick, next, ErrNotDue
	}

	isDue := pause.For(ctx, tick.Sub(now))
	if !isDue {
		return tick, next, context.Cause(ctx)
	}
	return tick, next, nil
}

// pollIfDueSoon schedules a poll for the tick next if it is due soon, because the call that found tick done may have
// been for next.
func (c *claim) pollIfDueSoon(tick, next time.Time) {
	if next.IsZero() {
		return
	}
	left := next.Sub(c.job.service.now())
	if left < min(next.Sub(tick)/2, time.Second) {
		c.job.poller.pollWithin(left)
	}
}

// checkRecords returns core.ErrDone if the latest tick is over, so that few of many replicas ask for the job's lease.
//
// If this process knows little of the earlier ticks, as after its start, checkRecords also reads them, to hold the
// lease for a shorter time later. Before that, it makes sure that no replica has the job's lease. All earlier starts
// are then on record, and from now on only this tick, a later one, or another attempt at the last started tick can
// start.
func (c *claim) checkRecords(ctx context.Context) error {
	j := c.job
	if len(j.unknownTicks(c.tick, maxTicksUnderLease+1)) <= maxTicksUnderLease {
		return c.checkLatestTick(ctx)
	}

	// No replica may have the lease before the records are read.
	state, err := j.service.locker.Inspect(ctx, j.runKey())
	switch {
	case err != nil:
		return err
	case state.Holder != nil:
		return &core.OpError{Op: core.OpAcquire, Key: j.runKey(), Err: core.ErrHeld, RetryAfter: state.Holder.Remaining}
	case state.Unknown():
		return &core.OpError{Op: core.OpAcquire, Key: j.runKey(), Err: core.ErrHeld}
	}

	// lastStarted stores its results in the memory.
	_, _, err = j.lastStarted(ctx, c.tick)
	if err != nil {
		return err
	}
	if err := j.skipReason(c.tick); errors.Is(err, core.ErrDone) {
		return err
	}
	return nil
}

// checkLatestTick reads the record after which the latest tick is over: the only start, or with AtLeastOnce the end. It
// returns core.ErrDone if the record exists. The record of a start does not count if this process has not begun the
// run.
func (c *claim) checkLatestTick(ctx context.Context) error {
	j := c.job
	finalKey := j.startKey(c.tick, 1)
	if j.startLimit > 1 {
		finalKey = j.endKey(c.tick)
	}

	found, err := j.readRecords(ctx, maxKeyWait, finalKey)
	if err != nil {
		return err
	}
	if found[0] == nil {
		return nil
	}

	e := entry{tick: c.tick, state: tickOver, startLimit: j.startLimit}
	if j.startLimit > 1 {
		e.end = found[0]
	} else {
		e.start = found[0]
		if j.isUnbegun(e.start, startID{c.tick, 1}) {
			return nil
		}
	}

	j.memory.add(e)
	_, next := j.latest(c.tick)
	c.pollIfDueSoon(c.tick, next)
	return core.ErrDone
}

// acquireLease acquires the job's lease with one of the methods of core.Locker.
func (c *claim) acquireLease(
	ctx context.Context,
	acquire func(context.Context, string, ...core.CallOption) (*core.Lease, error),
) (err error) {
	j := c.job
	c.lease, err = acquire(ctx, j.runKey(), core.Name(j.name), core.MaxWait(maxKeyWait))
	if err == nil {
		j.service.quorumGranted.Store(true)
	}
	return err
}

// chooseTick decides which tick to start. An orphan, which can only be the latest tick that was started, is started
// again. Otherwise the latest due tick is started, by the nodes' clocks as they were reported during this poll.
//
// Ticks before the latest that was started need no attention: runs do not overlap, and an orphan is started before any
// later tick. The lateness of a tick is measured at the beginning of the poll, so the duration of a poll makes no tick
// late.
func (c *claim) chooseTick(ctx context.Context) error {
	j := c.job
	due, _, err := c.waitUntilDue(ctx)
	if err != nil {
		return err
	}
	last, unstarted, err := j.lastStarted(ctx, due)
	if err != nil {
		return err
	}

	isLate := unstarted > 0 && j.timeAt(c.began).Sub(due) > j.grace
	switch {
	case last.state == tickOrphaned:
		c.entry = last
		// A function that fails for a moment, on any replica, must not use up all starts in that moment.
		since := j.service.now().Sub(last.start.At)
		if !pause.For(ctx, min(retryDelay-since, retryDelay)) {
			return context.Cause(ctx)
		}
	case unstarted == 0:
		// The latest due tick was started.
		return core.ErrDone
	case isLate && !last.isStarted() && due.Before(j.added):
		// A tick from before the job was added does not count as missed.
		j.memory.setLate(due, c.began, ErrNotDue)
		return ErrNotDue
	case isLate:
		j.memory.setLate(due, c.began, ErrMissed)
		return ErrMissed
	case last.isStarted():
		// The unstarted ticks except the latest never start.
		c.superseded = unstarted - 1
	}

	c.previous, err = j.findPrevious(ctx, last)
	c.advance(onClaim)
	return err
}

// findPrevious returns the last tick, at most that of e, that is known to have completed without an error. The end of
// the tick may have been recorded since e was read, so findPrevious reads it again.
//
// This process may know more than the records: the end of its own run, which it could not record. The replica that
// started e then did not know of it either.
func (j *Job) findPrevious(ctx context.Context, e entry) (time.Time, error) {
	isEndKnown := e.end != nil || !e.isFinal()
	if !isEndKnown {
		end, err := j.readRecords(ctx, maxKeyWait, j.endKey(e.tick))
		if err != nil {
			return time.Time{}, err
		}
		e.end = end[0]
		j.memory.add(e)
	}

	recorded := e.lastCompleted()
	known := j.memory.lastCompleted(e.tick)
	if known.After(recorded) {
		return known, nil
	}
	return recorded, nil
}
