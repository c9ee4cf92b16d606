package cronlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/internal/fenced"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

// Call records the start, calls the function, and returns its error, which matches core.ErrLost if the lease was lost.
// If the run cannot start any more, the error is an [*Error]. A second Call starts a run by hand again; for a tick, its
// error matches core.ErrDone.
func (c *claim) Call() error {
	if err := c.beginRun(); err != nil {
		c.advance(onRelease)
		return c.refuse(err)
	}

	j := c.job
	j.service.addRun(c)
	c.isCalled = true
	c.fnErr = errPanicked // stays if the function does not return
	j.event(c.ctx, EventRun)
	if c.nextAttempt() > 1 {
		j.event(c.ctx, EventRerun)
	}
	j.reportSuperseded(c.ctx, c.superseded)
	j.outage.clear()

	// If the function panics, the run counts as interrupted.
	outcome := onInterruption
	defer func() { c.advance(outcome) }()
	ctx := c.withWork(c.runCtx)
	c.fnErr = j.fn(ctx)
	if fenced.IsDone(ctx, c.fnErr) {
		c.fnErr = nil
	}

	// If a store has refused the run's fencing token, the lease was lost, although this process may not have noticed.
	c.isStale = fenced.IsStale(c.fnErr)
	hasEnded := c.runCtx.Err() != nil || c.isStale
	if c.fnErr == nil || !hasEnded {
		outcome = onCompletion
	}
	return errors.Join(c.fnErr, c.lease.Lost())
}

// withWork returns the context of the function, with the tick as its work: it is the same in each start of the tick. Each
// run by hand is work of its own.
func (c *claim) withWork(ctx context.Context) context.Context {
	s := c.job.service
	if c.byHand {
		return s.locker.WithWork(ctx, "cron", s.name, c.job.name, "hand", rand.Text())
	}
	return s.locker.WithWork(ctx, "cron", s.name, c.job.name, "tick", stamp(c.tick))
}

var errPanicked = errors.New("the function panicked")

// beginRun records the start of the tick; a run by hand has no record. It fails if the run must not begin. core.ErrDone
// means that this start is already recorded, for another claim or by an earlier Call.
func (c *claim) beginRun() error {
	j := c.job
	if err := cmp.Or(context.Cause(c.runCtx), context.Cause(j.removed)); err != nil {
		return err
	}
	if c.byHand {
		return nil
	}

	mine, err := c.recordStart()
	err = cmp.Or(err, context.Cause(c.runCtx))
	if err != nil {
		// The start stays pending: if the nodes have its record, a later claim of this process begins the run.
		return err
	}

	j.memory.clearPending()
	if !mine {
		// The replica that wrote the record may have died since.
		j.poller.retryIn(0)
		return core.ErrDone
	}
	c.advance(onStart)
	return nil
}

// recordStart records the start of the tick on a quorum, and reports whether the record belongs to this claim. A record
// that this process asked for earlier belongs to it as well: the process has not begun that run, because the reply was
// lost or the run was told to stop before it began.
func (c *claim) recordStart() (mine bool, err error) {
	j := c.job
	isRepeated := j.memory.setPending(startID{c.tick, c.nextAttempt()})
	mine, found, err := c.writeRecord(c.runCtx, j.startKey(c.tick, c.nextAttempt()), nil)
	return mine || isRepeated && found.By == j.service.replicaID, err
}

// advance changes the state of the tick. An impossible transition changes nothing: a run by hand has no tick, and a
// host may call Call once too often.
func (c *claim) advance(t transition) {
	if next := c.state.next(t, c.startLimit-c.nextAttempt()); next != impossible {
		c.state = next
	}
}

// End releases the job's lease. After Call, End first records the end of the run, unless the tick must be started
// again. Without Call, the tick stays free for other replicas. The error says that the end could not be recorded.
// Calling End again does nothing.
func (c *claim) End() (err error) {
	c.endOnce.Do(func() {
		defer c.release()
		c.advance(onRelease) // changes nothing after Call
		if c.isCalled {
			err = c.finishRun()
		}
	})
	return err
}

// finishRun remembers the run, records its end, and reports its lease or term as lost if it was. The memory comes
// first: it must know the run even if the record fails.
func (c *claim) finishRun() (err error) {
	if !c.byHand {
		c.rememberRun()
	}
	if c.state == tickOver {
		err = c.recordEnd()
	}

	lost := errors.Join(context.Cause(c.runCtx), c.lease.Lost())
	if errors.Is(lost, core.ErrLost) || c.isStale {
		c.job.event(c.ctx, EventLost)
	}
	return err
}

// rememberRun stores the facts that this process knows after its run, even if no record of the end can be written: the
// tick may be over, and no tick that fell due during the run was started, because this process held the job's lease.
func (c *claim) rememberRun() {
	j := c.job
	if c.state == tickOver {
		c.rememberEnd(c.newRecord(c.fnErr))
	}

	// The time is read before the lease is checked, because the process may be paused in between.
	now := time.Now()
	due, _ := j.latest(j.timeAt(now))
	if c.lease.Lost() != nil {
		return
	}

	for _, tick := range ticksBefore(j.schedule, due, c.tick) {
		j.memory.add(entry{tick: tick, state: tickOver, unstartedAt: now})
	}
}

// rememberEnd stores that the tick is over. It stores the end itself only if the run succeeded. The end of a failed run
// counts once it is recorded: until then another replica may start the tick again, and succeed.
func (c *claim) rememberEnd(end record) {
	e := entry{tick: c.tick, state: tickOver, start: &end, startLimit: c.startLimit}
	if c.fnErr == nil {
		e.end = &end
	}
	c.job.memory.add(e)
}

// recordEnd records the end of the run. It retries until the job's lease ends, because before that no other replica can
// mistake the tick for an orphan. It gives up earlier if Close of the Service or of the elector stops waiting.
func (c *claim) recordEnd() error {
	j := c.job
	retryCtx, stop := join.Contexts(context.WithoutCancel(c.ctx), c.lease.Context(), j.service.abandoned)
	defer stop()
	for {
		// A write that has begun is not cut short.
		_, end, err := c.writeRecord(context.WithoutCancel(c.ctx), j.endKey(c.tick), c.fnErr)
		if err == nil {
			c.rememberRecordedEnd(end)
			return nil
		}

		mayRetry := isRetryable(err) && !c.isAbandoned()
		if !mayRetry || !pause.For(retryCtx, retryDelay/4) {
			c.reportUnrecorded(err)
			return err
		}
	}
}

// rememberRecordedEnd stores the recorded end of a failed run. The end of a run that succeeded is stored already.
func (c *claim) rememberRecordedEnd(end record) {
	if c.fnErr == nil {
		return
	}
	c.job.memory.add(entry{tick: c.tick, state: tickOver, start: &end, end: &end, startLimit: c.startLimit})
}

// isRetryable reports whether a record that could not be written may be written later.
func isRetryable(err error) bool {
	switch core.ClassOf(err) {
	case core.ClassHeld, core.ClassUnavailable, core.ClassLost:
		return true
	default:
		return false
	}
}

// isAbandoned reports whether Close of the elector has stopped waiting for the run.
func (c *claim) isAbandoned() bool {
	return c.term != nil && errors.Is(context.Cause(c.term), leader.ErrNotLeader)
}

// reportUnrecorded reports that the end of the run could not be recorded. Without AtLeastOnce it reports nothing,
// because only the history of the job is incomplete then.
func (c *claim) reportUnrecorded(err error) {
	j := c.job
	if j.startLimit <= 1 {
		return
	}
	j.event(c.ctx, EventUnrecorded)
	j.log(slog.LevelError, "cronlock: the end of a run was not recorded: another replica may start its tick again",
		"tick", stamp(c.tick), "attempt", c.nextAttempt(), "err", err)
}
