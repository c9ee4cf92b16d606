package cronlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/internal/hosting"
	"github.com/lockkit/lockkit/internal/join"
)

func init() {
	hosting.NewClaim = func(ctx context.Context, job any, byHand bool) (hosting.Claim, error) {
		c, err := job.(*Job).newClaim(ctx, byHand)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// A claim is the right to start a run: this replica holds the job's lease, and nothing is recorded yet. Call starts the
// run, and End releases the lease. A claim is used by one goroutine at a time. Only Service.leaveTerm uses its term
// from another goroutine.
type claim struct {
	job     *Job
	byHand  bool            // started by RunNow, without a tick
	began   time.Time       // start of the poll; the lateness of the tick is measured at this time
	ctx     context.Context // context of the caller, joined with the term if there is one
	term    *membership     // nil without an elector, and in a run by hand
	entered bool            // the claim is inside Service.gate
	lease   *core.Lease     // lease on the job's key; nil until it is acquired

	runCtx    context.Context // context of the run; nil until the claim is complete
	cancelRun func()
	endOnce   sync.Once // makes End release the claim once

	entry                // records of the tick to start; zero in a run by hand
	previous   time.Time // Run.Previous: the last earlier tick known to have completed without an error
	superseded int       // number of ticks between the last started tick and this one

	isCalled bool  // Call has called the job's function
	fnErr    error // result of the function; errPanicked until it has returned
	isStale  bool  // the function has returned the error of a store that refused its fencing token
}

// newClaim acquires the right to start a run. The error is an [*Error].
func (j *Job) newClaim(ctx context.Context, byHand bool) (*claim, error) {
	c := &claim{job: j, byHand: byHand, began: time.Now(), ctx: ctx, cancelRun: func() {}}
	// Deferred, because the observer and the schedule may panic.
	defer func() {
		if c.runCtx == nil {
			c.release()
		}
	}()

	err := c.acquire()
	if err != nil {
		return nil, c.refuse(err)
	}

	leaseCtx := c.lease.Context()
	values := context.WithValue(NewContext(leaseCtx, c.newRun()), runJobKey{j.service}, j)
	runCtx, cancelRun := join.Contexts(values, c.ctx, leaseCtx)
	c.runCtx = runCtx
	c.cancelRun = cancelRun
	return c, nil
}

// acquire enters the Service and acquires the job's lease. Unless the run is by hand, it also chooses the tick.
func (c *claim) acquire() error {
	if err := c.enter(); err != nil {
		return err
	}
	if c.byHand {
		return c.acquireLease(c.ctx, c.job.service.locker.Acquire)
	}
	return c.claimDueTick()
}

// newRun returns the Run that the job's function gets from its context.
func (c *claim) newRun() Run {
	run := Run{
		Job:          c.job.name,
		FencingToken: c.lease.FencingToken(),
	}
	if c.byHand {
		return run
	}

	run.Tick = c.tick
	run.Previous = c.previous
	run.Next = c.job.schedule.Next(c.tick)
	run.Attempt = c.nextAttempt()
	return run
}

// runJobKey is the context key of the Job that a run of the Service belongs to.
type runJobKey struct{ *Service }

// enter enters the Service. If there is an elector, it also enters the term in which this process leads, except for a
// run by hand.
func (c *claim) enter() error {
	s := c.job.service
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	if c.job.removed.Err() != nil {
		return core.ErrClosed
	}

	c.entered = s.gate.Enter()
	if !c.entered {
		return core.ErrClosed
	}

	if s.elector == nil || c.byHand {
		return nil
	}
	term, err := joinTerm(c.ctx, s.elector)
	if err != nil {
		return err
	}

	c.ctx = term
	c.term = term
	return s.addTermClaim(c)
}

// refuse reports why no run starts, and returns the reason as an [*Error]. If a run may become possible, refuse
// schedules another poll.
func (c *claim) refuse(err error) error {
	j := c.job
	event, expected := classify(err)
	refusal := &Error{Job: j.name, Tick: c.tick, Err: err}
	if !j.service.isWaitingForNewNodes(err) {
		j.event(c.ctx, event)
		if !c.byHand {
			j.outage.report(j, event, refusal)
		}
	}

	op, isOpError := errors.AsType[*core.OpError](err)
	switch {
	case isOpError && event == EventHeld:
		// The holder may die, or may be running an earlier tick.
		j.poller.retryIn(op.RetryAfter + jitter())
	case !expected && event != EventMissed:
		j.poller.retryIn(retryDelay + jitter())
	}
	return refusal
}

// release gives up all that the claim holds. The deferred calls run in reverse order. The lease goes first, so that
// this replica's next poll and the next leader find the job free. The gate is last, so that Service.Close waits for all
// of it.
func (c *claim) release() {
	j := c.job
	if c.entered {
		defer j.service.gate.Leave()
	}
	defer j.service.removeClaim(c)
	if c.term != nil {
		defer c.term.close()
	}

	if c.state == tickOrphaned {
		// The cause of the interruption may persist, so the retry waits.
		defer j.poller.retryIn(0)
	} else if c.isCalled {
		// A tick may have fallen due during the run.
		defer j.poller.pollWithin(0)
	}

	defer c.cancelRun()
	if c.lease != nil {
		// The tick may still be due, for instance if a listener of the host refused it.
		j.poller.pollWithin(hostTimeout)
		c.lease.Release(context.WithoutCancel(c.ctx))
	}
}
