package cronlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
)

// Lock is what gocron calls before each run of a job. It does not wait for runs of others: gocron schedules
// the job's next tick only after it has returned. Its error is a [*TickError]. ctx is that of the job, shared
// by all its runs; when it ends, the run it was called for keeps its lease until Unlock.
func (c *Cron) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	return c.lock(ctx, name, c.policy)
}

// Lock is that of the Cron, with the policy of the job.
func (l *jobLocker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	return l.c.lock(ctx, name, l.p)
}

func (c *Cron) lock(ctx context.Context, name string, p policy) (gocron.Lock, error) {
	cl := &claim{c: c, job: c.job(name), policy: p, ctx: ctx, waits: ctx}
	r, err := cl.run()
	if errors.Is(err, ErrJob) {
		cl.job.unusable.Do(func() { c.logger.Error("cronlock: a job does not run", "job", name, "err", err) })
	}
	if err != nil {
		c.busy(0)
		cl.event(meaningOf(err).event)
		return nil, &TickError{Job: name, Tick: cl.tick, Err: explain(err)}
	}
	c.handoff.offer(ctx, r)
	return r, nil
}

// A claim is one attempt of this replica to run a job.
type claim struct {
	c      *Cron
	job    *job
	policy policy
	ctx    context.Context // the job's
	waits  context.Context // of what has to be waited for

	tick    time.Time // zero for a manual run
	id      string    // of the tick
	shared  bool      // id is known to be the same on all replicas
	settled bool      // it was decided that the tick does not run
	period  time.Duration
	gap     time.Duration // not 0: the tick differs between replicas
	slot    string        // of the tick, where each has a gap of its own
	next    time.Time     // the job's next tick, if known
}

func (cl *claim) event(kind core.EventKind) {
	if kind != "" {
		cl.c.locks.Event(cl.ctx, core.Event{Source: source, Name: cl.job.name, Kind: kind})
	}
}

// run finds out what the call is for and takes what it needs.
func (cl *claim) run() (*run, error) {
	c := cl.c
	if err := cl.ctx.Err(); err != nil {
		return nil, err
	}
	kind, err := cl.identify()
	if err != nil {
		return nil, err
	}
	if kind == callRerun {
		r := cl.job.handover()
		if r == nil {
			return nil, ErrMissed
		}
		if err := r.ctx.Err(); err != nil { // lost since it was claimed
			err = context.Cause(r.ctx)
			r.abandon()
			return nil, err
		}
		return r, nil
	}
	t, err := c.enter()
	if errors.Is(err, ErrNotLeader) {
		cl.job.leaveToLeader(cl)
	}
	if err != nil {
		return nil, err
	}
	r, err := cl.take(t)
	if cl.policy.runAnyway && errors.Is(err, core.ErrUnavailable) {
		return cl.unprotected(t, err), nil
	}
	if err != nil {
		c.leave(t)
		cl.watch(err)
	}
	return r, err
}

// identify fills in the tick that the call is for.
func (cl *claim) identify() (call, error) {
	c, j := cl.c, cl.job
	if err := checkName(j.name); err != nil {
		return 0, err
	}
	now := c.clock.Now()
	h, err := j.handle(cl.ctx, cl.policy.minGap == 0)
	if h == nil && err == nil { // only the gap tells ticks apart, so a manual run is one like any other
		cl.tick, cl.id, cl.gap, cl.period = now, stamp(now), cl.policy.minGap, cl.policy.minGap
		return callTick, nil
	}
	if err != nil {
		return 0, err
	}
	j.mu.Lock()
	then := j.called
	j.called = now
	j.mu.Unlock()
	now = reckon(then, now.Sub(then), now)
	s := scheduleOf(h.Schedule())
	due, next, period, err := ticks(h, &s, now)
	if err != nil {
		if cl.ctx.Err() != nil {
			return 0, cl.ctx.Err()
		}
		return 0, fmt.Errorf("%w: gocron did not tell its ticks: %w", ErrMissed, err)
	}
	quiet := c.quiet()
	j.mu.Lock()
	j.calls.see(due, next, now.Add(early(period)), quiet)
	kind, tick := j.calls.take(len(j.handovers) > 0)
	j.mu.Unlock()
	cl.period, cl.next = period, next
	if kind != callTick {
		return kind, nil
	}
	cl.tick, cl.id = tick, stamp(tick)
	switch {
	case cl.policy.minGap > 0:
		cl.gap = cl.policy.minGap
	case s.gap > 0:
		cl.gap = s.gap
		if s.slot != nil {
			cl.slot = s.slot(tick)
		}
	case !s.shared(tick):
		cl.gap = cl.policy.grace
	}
	cl.shared = cl.gap == 0
	return kind, nil
}

// late says that the tick is over, or the clock too far off to tell.
func (cl *claim) late() error {
	offset, _ := cl.c.ClockOffset()
	if offset.Abs() > cl.c.clockLimit {
		return errOff(offset)
	}
	if !cl.tick.IsZero() && cl.c.now().Sub(cl.tick) > cl.policy.grace {
		return errLate(cl.c.now().Sub(cl.tick))
	}
	return nil
}
