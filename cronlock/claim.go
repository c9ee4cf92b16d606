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
		c, err := job.(*Job).claim(ctx, byHand)
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

// A claim is the right to start a run: this replica holds the job's lease. Nothing is recorded yet. Call starts the run,
// and End gives the lease back.
type claim struct {
	job       *Job
	byHand    bool
	began     time.Time
	ctx       context.Context // of the call, and of the term if there is one
	term      *membership     // nil: there is no elector, or the run is by hand
	entered   bool            // of the Service
	lease     *core.Lease
	runCtx    context.Context // of the run
	cancelRun func()
	endOnce   sync.Once

	entry                // of what is to start; none for a run by hand
	previous   time.Time // the last tick before it that is known to have completed without an error
	superseded int       // ticks between it and the latest one before that was started

	isCalled bool
	fnErr    error // the function's; errPanicked until it has returned
}

func (j *Job) claim(ctx context.Context, byHand bool) (*claim, error) {
	c := &claim{job: j, byHand: byHand, began: time.Now(), ctx: ctx, cancelRun: func() {}}
	defer func() { // also when an observer, or the schedule, panics
		if c.runCtx == nil {
			c.release()
		}
	}()

	err := c.enter()
	switch {
	case err != nil:
	case byHand:
		err = c.acquireLease(ctx, j.service.locker.Acquire)
	default:
		err = c.claimDueTick()
	}
	if err != nil {
		return nil, c.refuse(err)
	}

	run := Run{Job: j.name, FencingToken: c.lease.FencingToken()}
	if !byHand {
		run.Tick, run.Previous, run.Next, run.Attempt = c.tick, c.previous, j.schedule.Next(c.tick), c.nextAttempt()
	}
	values := context.WithValue(NewContext(c.lease.Context(), run), runJobKey{j.service}, j)
	c.runCtx, c.cancelRun = join.Contexts(values, c.ctx, c.lease.Context())
	return c, nil
}

// insideKey is the key under which the context of a run has its job.
type runJobKey struct{ *Service }

// enter lets the claim in, and into the term in which this process leads, if it must lead.
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
	c.ctx, c.term = term, term
	return s.addTermClaim(c)
}

// refuse says why nothing starts, and sees to it that the job is looked at again when that may have changed.
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
	if op, ok := errors.AsType[*core.OpError](err); ok && event == EventHeld {
		j.poller.retryIn(op.RetryAfter + jitter()) // the holder may die, or run an earlier tick
	} else if !expected && event != EventMissed {
		j.poller.retryIn(retryDelay + jitter())
	}
	return refusal
}

// give ends the claim in this process.
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
		defer j.poller.retryIn(0) // what stopped the run may still be there
	} else if c.isCalled {
		defer j.poller.pollWithin(0) // a tick may have fallen due meanwhile
	}
	defer c.cancelRun()
	if c.lease != nil {
		j.poller.pollWithin(hostTimeout) // the tick may still be due, as where a listener of the host refused it
		c.lease.Release(context.WithoutCancel(c.ctx))
	}
}
