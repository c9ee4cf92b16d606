package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// What a run takes, in this order:
//
//  1. where replicas do not share the ticks: the gap, whose record names the tick for all of them
//  2. the lease on the tick, held until the run is over and recorded as done with it
//  3. the first attempt that is not recorded yet
//  4. the lease on the job, unless runs may overlap
//  5. the record of the attempt; from here on the run counts as started
//
// The attempt is recorded last, so that a tick that could not start is left to others; and before the run, so
// that one whose replica dies is not started more often than its policy allows.

func errLate(by time.Duration) error {
	return fmt.Errorf("%w: it is late by %v", ErrMissed, by.Round(time.Millisecond))
}

func errOff(offset time.Duration) error {
	return fmt.Errorf("%w: the nodes' clocks are ahead of the scheduler's by %v", ErrClock, offset.Round(time.Millisecond))
}

// claimWait bounds how long Lock waits for what is only held for a moment: a gap, or an attempt, that is about
// to be recorded.
func (cl *claim) claimWait() time.Duration {
	return max(min(cl.period/2, time.Second), 10*time.Millisecond)
}

// acquire takes a lease, waiting for at most wait, which may be 0.
func (cl *claim) acquire(key string, wait time.Duration, opts ...core.CallOption) (*core.Lease, error) {
	opts = append([]core.CallOption{core.Linger(core.Forever), core.Name(cl.job.name), core.Retention(cl.policy.retention), core.MaxWait(wait)}, opts...)
	if wait == 0 {
		return cl.c.locks.TryAcquire(cl.waits, key, opts...)
	}
	return cl.c.locks.Acquire(cl.waits, key, opts...)
}

func (cl *claim) record(outcome string, attempt int) []byte {
	return record{Tick: cl.id, By: cl.c.self, Outcome: outcome, Attempt: attempt}.bytes()
}

// take takes what the run needs, or nothing.
func (cl *claim) take(t *term) (*run, error) {
	if err := cl.late(); err != nil {
		return nil, err
	}
	if cl.tick.IsZero() {
		job, err := cl.takeJob(0)
		if err != nil {
			return nil, err
		}
		cl.event(EventRun)
		return cl.newRun(t, 1, nil, job), nil
	}
	if cl.gap > 0 {
		if err := cl.takeGap(); err != nil {
			return nil, err
		}
	}
	tick, err := cl.acquire(cl.tickKey(), 0)
	if err != nil {
		return nil, err
	}
	return cl.takeRest(t, tick, false)
}

// takeGap has the nodes tell whether it is time for the next start, and which tick that is.
func (cl *claim) takeGap() error {
	left := cl.gap - cl.c.clock.Now().Sub(cl.tick) // the gap counts from the tick, not from when it was claimed
	retention := core.Retention(max(left, time.Millisecond))
	lease, err := cl.acquire(cl.gapKey(), cl.claimWait(), retention)
	var op *core.OpError
	if errors.Is(err, core.ErrDone) && errors.As(err, &op) {
		cl.adopt(op.Record)
	}
	if err != nil {
		return err
	}
	err = cl.complete(lease, cl.record(outcomeStarted, 0))
	cl.shared = err == nil
	return err
}

// adopt makes the tick that another replica has started the subject of the claim.
func (cl *claim) adopt(of *core.Record) {
	r, ok := parseRecord(of.Result)
	if !ok {
		return
	}
	if tick, err := time.Parse(time.RFC3339Nano, r.Tick); err == nil {
		cl.tick, cl.id, cl.shared = tick, r.Tick, true
	}
}

// takeRest goes on from the lease on the tick. In the background it has time to wait for what a dead holder
// left behind.
func (cl *claim) takeRest(t *term, tick *core.Lease, background bool) (_ *run, err error) {
	var attempt, job *core.Lease
	defer func() {
		if err != nil {
			cl.release(attempt, job, tick) // those that are completed do not mind
		}
	}()
	if err := cl.late(); err != nil { // again: the process may have slept
		return nil, err
	}
	n, attempt, err := cl.nextAttempt()
	if err != nil {
		return nil, err
	}
	if attempt == nil {
		return nil, errors.Join(cl.settle(tick, outcomeAbandoned, n), fmt.Errorf("%w: it was started %d times", errAbandoned, n))
	}
	var wait time.Duration
	switch {
	case background:
		wait = cl.left()
	case n > 1:
		wait = cl.claimWait()
	}
	job, err = cl.takeJob(wait)
	if errors.Is(err, ErrOverlap) && n == 1 && !cl.c.now().Before(cl.tick) { // who is early must not decide for the others
		return nil, errors.Join(err, cl.settle(tick, outcomeSkipped, 0))
	}
	if err != nil {
		return nil, err
	}
	if err := cl.late(); err != nil { // and again: the run before it may have taken its time to end
		return nil, err
	}
	if err := cl.complete(attempt, cl.record(outcomeStarted, n)); err != nil {
		return nil, err
	}
	if background || n > 1 {
		cl.event(EventRerun)
	}
	cl.event(EventRun)
	return cl.newRun(t, n, tick, job), nil
}

// left is what is left of the misfire grace.
func (cl *claim) left() time.Duration {
	return max(cl.policy.grace-cl.c.now().Sub(cl.tick), time.Millisecond)
}

// nextAttempt takes the first attempt that is not recorded. Without a lease, n were, which is all there are.
func (cl *claim) nextAttempt() (n int, _ *core.Lease, err error) {
	for n = 1; n <= cl.policy.attempts; n++ {
		lease, err := cl.acquire(cl.attemptKey(n), cl.claimWait())
		if !errors.Is(err, core.ErrDone) {
			return n, lease, err
		}
	}
	return n - 1, nil, nil
}

// takeJob takes the job, so that no two runs overlap.
func (cl *claim) takeJob(wait time.Duration) (*core.Lease, error) {
	switch cl.policy.overlap {
	case Allow:
		return nil, nil
	case Replace:
		cl.job.replace()
		wait = max(wait, min(cl.period/2, 10*time.Second))
	case Forbid:
	}
	lease, err := cl.acquire(cl.runKey(), wait)
	if errors.Is(err, core.ErrHeld) {
		err = fmt.Errorf("%w: %w", ErrOverlap, err)
	}
	return lease, err
}

// settle records the end of a tick that does not run.
func (cl *claim) settle(tick *core.Lease, outcome string, attempt int) error {
	cl.settled = true
	return cl.complete(tick, cl.record(outcome, attempt))
}

// recordFor is for how long a record is tried to be written while its outcome is open.
const recordFor = time.Second

// complete writes a record. It takes no cancelled context for an answer.
func (cl *claim) complete(lease *core.Lease, result []byte) error {
	return lease.Complete(context.WithoutCancel(cl.ctx), result, core.RetryFor(recordFor))
}

// release gives back the leases that are not nil, all at once.
func (cl *claim) release(leases ...*core.Lease) {
	var wg sync.WaitGroup
	for _, lease := range leases {
		if lease != nil {
			wg.Go(func() { lease.Release(cl.ctx) }) // core logs what it cannot confirm, and goes on trying
		}
	}
	wg.Wait()
}

// unprotected is a run without leases.
func (cl *claim) unprotected(t *term, why error) *run {
	cl.c.logger.Warn("cronlock: runs unprotected, on every replica that the tick reaches", "job", cl.job.name, "tick", cl.id, "err", why)
	cl.event(EventUnprotected)
	return cl.newRun(t, 1, nil, nil)
}
