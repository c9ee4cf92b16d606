package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
)

// start takes what a run needs, or nothing. It does not wait for runs of others: gocron schedules the job's next tick
// only after it has returned. ctx is gocron's, shared by all runs of the job; when it ends, the run keeps its leases
// until Unlock. why is not nil where it is known already that the run does not start.
func (j *Job) start(ctx context.Context, t tick, from *call, why error) (gocron.Lock, error) {
	r := &run{job: j, tick: t, from: from, ctx: ctx, leave: func() {}}
	for _, step := range []func() error{
		func() error { return why },
		r.enter,       // open, and this replica leads if it must
		r.inTime,      // the clock, and the misfire grace
		r.takeGap,     // only where replicas do not share the ticks: its record names the tick for all of them
		r.takeTick,    // held or done elsewhere: that is the answer
		r.takeAttempt, // the first that is not recorded
		r.takeJob,     // unless runs may overlap; a tick that is skipped is recorded
		r.inTime,      // again: the process may have slept, or waited for the run before
		r.offer,       // to the task, which records the attempt; from then on the run counts as started
	} {
		if err := step(); err != nil {
			r.undo()
			return r.refuse(err)
		}
	}
	return r, nil
}

// refuse says why the run does not start; unless it is to run anyway.
func (r *run) refuse(err error) (gocron.Lock, error) {
	j := r.job
	if j.policy.runAnyway && (outage(err) || errors.Is(err, ErrNotLeader) && r.cutOff()) {
		if r, ok := j.unprotected(r, err); ok {
			return r, nil
		}
	}
	err = explain(err)
	r.event(meaningOf(err).event)
	r.from.ended(r, err)
	return nil, &TickError{Job: j.name, Tick: r.tick.at, Err: err}
}

// undo gives back what was taken.
func (r *run) undo() {
	r.release(r.attemptLease, r.jobLease, r.tickLease) // those that are completed do not mind
	r.attemptLease, r.jobLease, r.tickLease = nil, nil, nil
	if r.work != nil {
		r.cancel(core.ErrReleased)
		r.unjoin()
	}
	r.close()
}

func (r *run) enter() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	ctx, leave, err := r.job.cron.enter(r.ctx)
	if err != nil {
		return err
	}
	r.term, r.leave = ctx, leave
	return nil
}

// inTime says whether the tick is over, or the clock too far off to tell. The misfire grace is for the first attempt;
// those after it may come for as long as the one before is on record.
func (r *run) inTime() error {
	c, p := r.job.cron, r.job.policy
	if offset, _ := c.ClockOffset(); offset.Abs() > c.clockLimit {
		return fmt.Errorf("%w: the nodes' clocks are ahead of the scheduler's by %v", ErrClock, offset.Round(time.Millisecond))
	}
	limit := p.grace
	if r.attempt > 1 || r.attempt == 0 && r.tick.late {
		limit = r.job.rerunnable(r.tick)
	}
	if late := c.now().Sub(r.tick.at); !r.tick.at.IsZero() && late > limit {
		return fmt.Errorf("%w: it is late by %v", ErrMissed, late.Round(time.Millisecond))
	}
	return nil
}

// briefly bounds how long Lock waits for what is only held for a moment: a gap, or an attempt, that is about to be
// recorded.
func (r *run) briefly() time.Duration {
	return max(min(r.tick.period/2, time.Second), 10*time.Millisecond)
}

// acquire takes a lease, waiting for at most wait, which may be 0.
func (r *run) acquire(key string, wait time.Duration, opts ...core.CallOption) (*core.Lease, error) {
	opts = append([]core.CallOption{core.Linger(core.Forever), core.MinHold(0), core.Name(r.job.name),
		core.Retention(r.job.retention(r.tick)), core.MaxWait(wait)}, opts...)
	if wait == 0 {
		return r.job.cron.locker.TryAcquire(r.term, key, opts...)
	}
	return r.job.cron.locker.Acquire(r.term, key, opts...)
}

// takeGap has the nodes tell whether it is time for the next start, and which tick that is.
func (r *run) takeGap() error {
	t := &r.tick
	if t.gap == 0 || t.shared {
		return nil
	}
	left := t.gap - r.job.cron.clock.Now().Sub(t.at) // the gap counts from the tick, not from when it was claimed
	lease, err := r.acquire(r.job.key(t.gapKey()...), r.briefly(), core.Retention(max(left, time.Millisecond)))
	var op *core.OpError
	if errors.Is(err, core.ErrDone) && errors.As(err, &op) {
		t.adopt(op.Record)
	}
	if err != nil {
		return err
	}
	if err := r.complete(lease, outcomeStarted); err != nil {
		return err
	}
	t.shared = t.id != ""
	return nil
}

// adopt makes it the tick that another replica has started.
func (t *tick) adopt(of *core.Record) {
	r, ok := parseRecord(of.Result)
	if !ok || t.id == "" {
		return
	}
	if at, err := time.Parse(time.RFC3339Nano, r.Tick); err == nil {
		t.at, t.id, t.shared = at, r.Tick, true
	}
}

func (r *run) takeTick() (err error) {
	if r.tick.id != "" {
		r.tickLease, err = r.acquire(r.job.key(r.tick.key()...), 0)
	}
	return err
}

// takeAttempt takes the first attempt that is not recorded. Where all are, the tick is over.
func (r *run) takeAttempt() (err error) {
	for r.attempt = 1; r.tick.id != ""; r.attempt++ {
		if r.attempt > r.job.policy.attempts {
			r.attempt--
			return errors.Join(fmt.Errorf("%w: it was started %d times", errAbandoned, r.attempt), r.settle(outcomeAbandoned))
		}
		r.attemptLease, err = r.acquire(r.job.key(r.tick.attemptKey(r.attempt)...), r.briefly())
		if !errors.Is(err, core.ErrDone) {
			return err
		}
	}
	return nil
}

// takeJob takes the job, so that no two runs overlap.
func (r *run) takeJob() (err error) {
	var wait time.Duration
	if r.attempt > 1 {
		wait = r.briefly() // a dead holder's lease on the job ends with that on the tick, but for a moment
	}
	switch r.job.policy.overlap {
	case Allow:
		return nil
	case Replace:
		r.replaceOthers()
		wait = max(wait, min(r.tick.period/2, 10*time.Second))
	case Forbid:
	}
	r.jobLease, err = r.acquire(r.job.runKey(), wait)
	if !errors.Is(err, core.ErrHeld) {
		return err
	}
	err = fmt.Errorf("%w: %w", ErrOverlap, err)
	switch {
	case r.tickLease == nil, r.attempt > 1, r.tick.late, r.job.policy.overlap != Forbid:
		return err
	case r.job.cron.now().Before(r.tick.at): // who is early must not decide for others
		return err
	case r.job.catchesUp():
		r.tick.deferred = true
		return err
	}
	r.attempt = 0
	return errors.Join(err, r.settle(outcomeSkipped))
}

// catchesUp reports whether a run goes on in this process that is late for want of a leader or of nodes. What falls due
// meanwhile follows it, and is not skipped; but what falls due while that runs, is: there is no queue.
func (j *Job) catchesUp() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for r := range j.running {
		if r.tick.late && !r.tick.deferred {
			return true
		}
	}
	return false
}

// offer makes the context of the run, and hands it to the task.
func (r *run) offer() error {
	r.prepare()
	select {
	case r.from.handoff <- r:
		return nil
	case <-r.ctx.Done(): // no task has taken the run before
		return context.Cause(r.ctx)
	}
}

// settle records the end of a tick that does not run.
func (r *run) settle(outcome string) error {
	r.settled = true
	return r.complete(r.tickLease, outcome)
}

// recordFor is for how long a record is tried to be written while its outcome is open.
const recordFor = time.Second

// complete writes a record. It takes no cancelled context for an answer.
func (r *run) complete(lease *core.Lease, outcome string) error {
	result := record{Tick: r.tick.id, By: r.job.cron.self, Outcome: outcome, Attempt: r.attempt}.bytes()
	return lease.Complete(context.WithoutCancel(r.ctx), result, core.RetryFor(recordFor))
}

// release gives back the leases that are not nil, all at once.
func (r *run) release(leases ...*core.Lease) {
	var wg sync.WaitGroup
	for _, lease := range leases {
		if lease != nil {
			wg.Go(func() { lease.Release(context.WithoutCancel(r.ctx)) }) // core logs what it cannot confirm, and goes on trying
		}
	}
	wg.Wait()
}

// cutOff reports whether a replica that does not lead, and so has asked nobody, cannot reach the nodes either. It asks for
// a key that nobody needs: the tick is the leader's to take.
func (r *run) cutOff() bool {
	r.term = r.ctx
	lease, err := r.acquire(r.job.key("reach"), 0)
	r.release(lease)
	return outage(err)
}

// unprotected is a run without leases.
func (j *Job) unprotected(r *run, why error) (*run, bool) {
	if !j.cron.gate.Enter() {
		return nil, false
	}
	bare := &run{job: j, tick: r.tick, from: r.from, ctx: r.ctx, term: r.ctx, leave: j.cron.gate.Leave, attempt: 1}
	if bare.offer() != nil {
		bare.undo()
		return nil, false
	}
	j.cron.locker.Logger().Warn("cronlock: runs unprotected, on every replica that the tick reaches", "job", j.name, "tick", r.tick.id, "err", why)
	bare.event(EventUnprotected)
	return bare, true
}
