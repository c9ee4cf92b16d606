package cronlock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

// Call records the start, calls the function, and returns its error, which matches core.ErrLost if the lease was lost.
// If the run cannot start any more, the error is an [*Error]. A second Call starts a run by hand again; for a tick, its
// error matches core.ErrDone.
func (c *claim) Call() error {
	if err := c.start(); err != nil {
		c.advance(onRelease)
		return c.refuse(err)
	}
	j := c.job
	j.service.addRun(c)
	c.isCalled, c.fnErr = true, errPanicked
	j.event(c.ctx, EventRun)
	if c.nextAttempt() > 1 {
		j.event(c.ctx, EventRerun)
	}
	j.reportSuperseded(c.ctx, c.superseded)
	j.outage.clear()
	end := onInterruption // where the function panics
	defer func() { c.advance(end) }()
	c.fnErr = j.fn(c.runCtx)
	if c.fnErr == nil || c.runCtx.Err() == nil {
		end = onCompletion
	}
	return errors.Join(c.fnErr, c.lease.Lost())
}

var errPanicked = errors.New("the function panicked")

// begin records the start of a tick.
func (c *claim) start() error {
	j := c.job
	if err := cmp.Or(context.Cause(c.runCtx), context.Cause(j.removed)); err != nil || c.byHand {
		return err
	}
	mine, err := c.recordStart()
	err = cmp.Or(err, context.Cause(c.runCtx))
	if err != nil {
		return err // a start that is on record stays this process's to begin
	}
	j.memory.clearPending()
	if !mine {
		j.poller.retryIn(0) // the replica that has written it may have died in doing so
		return core.ErrDone
	}
	c.advance(onStart)
	return nil
}

// recordStart has a quorum record the start, and reports whether it is this claim's. If this process has asked for the same
// start before, and the nodes have that record, then it has not begun the run: it did not learn of the record, or was told
// to stop just then. It begins the run now.
func (c *claim) recordStart() (mine bool, err error) {
	j := c.job
	again := j.memory.setPending(start{c.tick, c.nextAttempt()})
	mine, found, err := c.writeRecord(c.runCtx, j.startKey(c.tick, c.nextAttempt()), nil)
	return mine || again && found.By == j.service.replicaID, err
}

// happens notes what becomes of the tick. A run by hand has none, and a Call too many changes nothing.
func (c *claim) advance(h transition) {
	if next := c.state.next(h, c.startLimit-c.nextAttempt()); next != impossible {
		c.state = next
	}
}

// End gives the job's lease back. After Call, End first records the end of the run, unless the tick is to be started again.
// Without Call, the tick stays free for other replicas. The error says that the end could not be recorded. Calling End
// again does nothing.
func (c *claim) End() (err error) {
	c.endOnce.Do(func() {
		defer c.release()
		c.advance(onRelease) // unless it was called
		if c.isCalled && !c.byHand {
			c.rememberRun()
		}
		if c.isCalled && c.state == tickOver {
			err = c.recordEnd()
		}
		if c.isCalled && errors.Is(errors.Join(context.Cause(c.runCtx), c.lease.Lost()), core.ErrLost) {
			c.job.event(c.ctx, EventLost)
		}
	})
	return err
}

// remember notes what this process knows of its run, whatever becomes of the record: that the tick is over, and that no tick
// that fell due during the run was started, because this process has had the job's lease.
func (c *claim) rememberRun() {
	j := c.job
	if c.state == tickOver {
		c.rememberEnd(c.newRecord(c.fnErr))
	}

	now := time.Now() // before it sees that it has the lease, or it might be paused in between
	due, _ := j.latest(j.timeAt(now))
	if c.lease.Lost() != nil {
		return
	}
	for _, tick := range ticksBefore(j.schedule, due, c.tick) {
		j.memory.add(entry{tick: tick, state: tickOver, unstartedAt: now})
	}
}

// noteEnd notes that the tick is over. Its end is noted if the run succeeded. The end of one that failed counts when it is on
// record, because otherwise another replica may start the tick again, and succeed.
func (c *claim) rememberEnd(end record) {
	e := entry{tick: c.tick, state: tickOver, start: &end, startLimit: c.startLimit}
	if c.fnErr == nil {
		e.end = &end
	}
	c.job.memory.add(e)
}

// record records the end of the run. It tries that for as long as the job's lease lives, because until then no other replica
// can take the tick for one that has not completed; but no longer than Close, of the Service or of the elector, waits.
func (c *claim) recordEnd() error {
	j := c.job
	ctx, stop := join.Contexts(context.WithoutCancel(c.ctx), c.lease.Context(), j.service.abandoned)
	defer stop()
	for {
		_, end, err := c.writeRecord(context.WithoutCancel(c.ctx), j.endKey(c.tick), c.fnErr)
		if err == nil && c.fnErr != nil {
			j.memory.add(entry{tick: c.tick, state: tickOver, start: &end, end: &end, startLimit: c.startLimit})
		}
		if err == nil || !isRetryable(err) || c.isAbandoned() || !pause.For(ctx, retryDelay/4) {
			return c.reportUnrecorded(err)
		}
	}
}

// mayPass reports whether a record that could not be written may be written later.
func isRetryable(err error) bool {
	switch core.ClassOf(err) {
	case core.ClassHeld, core.ClassUnavailable, core.ClassLost:
		return true
	}
	return false
}

// isDismissed reports whether the elector's Close waits no longer for the run.
func (c *claim) isAbandoned() bool {
	return c.term != nil && errors.Is(context.Cause(c.term), leader.ErrNotLeader)
}

// unrecorded tells that the end is not on record. A job that is started once has nothing to lose but its history.
func (c *claim) reportUnrecorded(err error) error {
	j := c.job
	if err != nil && j.startLimit > 1 {
		j.event(c.ctx, EventUnrecorded)
		j.log(slog.LevelError, "cronlock: the end of a run was not recorded: another replica may start its tick again",
			"tick", stamp(c.tick), "attempt", c.nextAttempt(), "err", err)
	}
	return err
}
