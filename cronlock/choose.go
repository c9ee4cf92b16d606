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
	dueTolerance = 50 * time.Millisecond // by how much a tick may be due later, for a call to be for it
	maxSpread    = 50 * time.Millisecond // how long a replica leaves a tick to others, at most
	maxKeyWait   = 3 * time.Second       // how long a look may have the lease of a job, or the key of a record, in the way of others
	// fewTicks is how many ticks are read under the job's lease. More are read before.
	maxTicksUnderLease = 10
)

var errPollTimeout = fmt.Errorf("%w in time: the look took as long as the TTL", core.ErrUnavailable)

// look finds what is to start, and takes the job's lease for it. Only one claim of a job looks at a time. A look ends after a
// TTL; what it has read until then, the next one knows.
func (c *claim) claimDueTick() error {
	j := c.job
	wait, stop := join.Contexts(c.ctx, j.removed)
	defer stop()
	j.polling.Add(1)
	defer j.polling.Add(-1)
	if err := acquireSlot(wait, j.pollSlot); err != nil {
		return err
	}
	defer releaseSlot(j.pollSlot)
	if err := c.waitForTick(wait); err != nil {
		return err
	}
	if err := acquireSlot(wait, j.service.pollSlots); err != nil {
		return err
	}
	defer releaseSlot(j.service.pollSlots)

	look, end := context.WithTimeout(wait, j.service.locker.TTL())
	defer end()
	err := c.checkRecords(look)
	if err == nil {
		err = c.acquireLease(look, j.service.locker.TryAcquire)
	}
	if err == nil {
		err = c.chooseTick(look)
	}
	if err != nil && look.Err() != nil && wait.Err() == nil {
		return errPollTimeout
	}
	return err
}

// enterTurn waits for a place among those that do something at the same time.
func acquireSlot(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func releaseSlot(places chan struct{}) { <-places }

// await waits until the latest tick is due by the nodes' clocks, and for a random moment more, so that replicas share the
// ticks. It fails if this process knows that there is nothing to start.
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
	if j.service.elector == nil && !next.IsZero() && !pause.For(ctx, rand.N(min(next.Sub(tick)/20, maxSpread)+1)) {
		return context.Cause(ctx)
	}
	return nil
}

// due waits until the latest tick is due by the nodes' clocks. It also returns the tick that follows.
func (c *claim) waitUntilDue(ctx context.Context) (tick, next time.Time, err error) {
	now := c.job.service.now()
	tick, next = c.job.latest(now.Add(dueTolerance))
	c.entry = entry{tick: tick, startLimit: c.job.startLimit}
	switch {
	case tick.IsZero():
		err = ErrNotDue
	case !pause.For(ctx, tick.Sub(now)):
		err = context.Cause(ctx)
	}
	return tick, next, err
}

// lookEarly makes the engine look when the next tick is due, if that is soon: the call may have been for that tick.
func (c *claim) pollIfDueSoon(tick, next time.Time) {
	early := next.Sub(c.job.service.now())
	if !next.IsZero() && early < min(next.Sub(tick)/2, time.Second) {
		c.job.poller.pollWithin(early)
	}
}

// find fails where the latest tick is over: so of many replicas few ask for the job's lease. If this process knows little of
// the ticks before, as after its start, find also reads those, so that the lease need not be held for so long. It then first
// makes sure that nobody has the job's lease: what was started before is then on record, and from now on only this tick, a
// later one, or once more the last one that was started can start.
func (c *claim) checkRecords(ctx context.Context) error {
	j := c.job
	if len(j.unknownTicks(c.tick, maxTicksUnderLease+1)) <= maxTicksUnderLease {
		return c.checkLatestTick(ctx)
	}
	state, err := j.service.locker.Inspect(ctx, j.runKey())
	switch {
	case err != nil:
		return err
	case state.Holder != nil:
		return &core.OpError{Op: core.OpAcquire, Key: j.runKey(), Err: core.ErrHeld, RetryAfter: state.Holder.Left}
	case state.Unknown():
		return &core.OpError{Op: core.OpAcquire, Key: j.runKey(), Err: core.ErrHeld}
	}
	_, _, err = j.lastStarted(ctx, c.tick)
	if err != nil {
		return err
	}
	if err := j.skipReason(c.tick); errors.Is(err, core.ErrDone) {
		return err
	}
	return nil
}

// filter reads the record with which the latest tick is over.
func (c *claim) checkLatestTick(ctx context.Context) error {
	j := c.job
	final := j.startKey(c.tick, 1)
	if j.startLimit > 1 {
		final = j.endKey(c.tick)
	}
	found, err := j.readRecords(ctx, maxKeyWait, final)
	if err != nil || found[0] == nil {
		return err
	}
	e := entry{tick: c.tick, state: tickOver, startLimit: j.startLimit}
	if j.startLimit > 1 {
		e.end = found[0]
	} else {
		e.start = found[0]
	}
	if j.startLimit == 1 && e.start.By == j.service.replicaID && j.memory.isPending(start{c.tick, 1}) {
		return nil // this process has not begun it
	}
	j.memory.add(e)
	_, next := j.latest(c.tick)
	c.pollIfDueSoon(c.tick, next)
	return core.ErrDone
}

// take takes the job's lease.
func (c *claim) acquireLease(ctx context.Context, acquire func(context.Context, string, ...core.CallOption) (*core.Lease, error)) (err error) {
	j := c.job
	c.lease, err = acquire(ctx, j.runKey(), core.Name(j.name), core.MaxWait(maxKeyWait))
	if err == nil {
		j.service.quorumGranted.Store(true)
	}
	return err
}

// choose decides what is to start: the latest tick that was started, once more, if that is owed; otherwise the latest tick
// that is due by the nodes' clocks, which have answered by now. Runs do not overlap, and an orphan goes first, so nothing is
// owed of the ticks before the latest that was started. A tick is late by what it was when the look began: what the look
// itself takes is not the tick's fault.
func (c *claim) chooseTick(ctx context.Context) error {
	j := c.job
	due, _, err := c.waitUntilDue(ctx)
	if err != nil {
		return err
	}
	started, waiting, err := j.lastStarted(ctx, due)
	if err != nil {
		return err
	}
	late := waiting > 0 && j.timeAt(c.began).Sub(due) > j.grace
	switch {
	case started.state == tickOrphaned:
		c.entry = started
		// A function that fails for a moment, on whatever replica, must not use up all starts in that moment.
		since := j.service.now().Sub(started.start.At)
		if !pause.For(ctx, min(retryDelay-since, retryDelay)) {
			return context.Cause(ctx)
		}
	case waiting == 0:
		return core.ErrDone
	case late && !started.isStarted() && due.Before(j.added): // a new job has missed nothing
		j.memory.setLate(due, c.began, ErrNotDue)
		return ErrNotDue
	case late:
		j.memory.setLate(due, c.began, ErrMissed)
		return ErrMissed
	case started.isStarted():
		c.superseded = waiting - 1
	}
	c.previous, err = j.findPrevious(ctx, started)
	c.advance(onClaim)
	return err
}

// completed returns the last tick, up to the one of e, that is known to have completed without an error. The end of e may
// have been recorded since it was read.
func (j *Job) findPrevious(ctx context.Context, e entry) (time.Time, error) {
	if e.isStarted() && e.end == nil && e.state == tickOver {
		end, err := j.readRecords(ctx, maxKeyWait, j.endKey(e.tick))
		if err != nil {
			return time.Time{}, err
		}
		e.end = end[0]
		j.memory.add(e)
	}
	return e.lastCompleted(), nil
}
