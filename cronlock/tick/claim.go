package tick

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// claim takes what a run needs, or nothing. It does not wait for runs of others: the host may schedule the job's next tick
// only after it has returned. What the host has scheduled is followed where it does not start.
func (j *Job) claim(ctx context.Context, t tick, scheduled bool) (*Claim, error) {
	r := &Claim{job: j, tick: t, scheduled: scheduled, ctx: ctx, leave: func() {}}
	for _, step := range []func() error{
		r.await,       // the tick, by the nodes' clocks, if this replica leads or needs not
		r.enter,       // open, and it leads if it must
		r.inTime,      // the clock, and the misfire grace
		r.takeGap,     // only where replicas do not share the ticks: its record names the tick for all of them
		r.takeTick,    // held or done elsewhere: that is the answer
		r.notPaused,   // a tick that is skipped is recorded
		r.takeAttempt, // the first that is not recorded
		r.takeJob,     // unless runs may overlap; a tick that is skipped is recorded
		r.inTime,      // again: the process may have slept, or waited for the run before
	} {
		if err := step(); err != nil {
			r.undo()
			return r.refuse(err)
		}
	}
	r.prepare()
	return r, nil
}

// refuse says why the run does not start; unless it is to run anyway.
func (r *Claim) refuse(err error) (*Claim, error) {
	if bare := r.unprotected(err); bare != nil {
		return bare, nil
	}
	err = explain(err)
	r.event(meaningOf(err).event)
	r.follow(err)
	return nil, &Error{Job: r.job.name, Tick: r.tick.At, Err: err}
}

// undo gives back what was taken.
func (r *Claim) undo() {
	r.release(r.attemptLease, r.jobLease, r.tickLease) // those that are completed do not mind
	r.close()
}

// enter lets the run in, and into the term in which this process leads, if it must.
func (r *Claim) enter() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	s := r.job.service
	if !s.gate.Enter() {
		return core.ErrClosed
	}
	r.term, r.leave = r.ctx, s.gate.Leave
	if s.elector == nil {
		return nil
	}
	term, depart, err := s.elector.Enter(r.ctx)
	r.term, r.leave = term, func() { depart(); s.gate.Leave() }
	return err
}

// await waits until the tick is due by the nodes' clocks, so that a replica whose clock is ahead does not run it early, and
// for a moment more, so that it is not always the same replica that comes first. Where that takes too long for a host whose
// next tick would have to wait, the tick is pursued.
func (r *Claim) await() error {
	t, s := r.tick, r.job.service
	if !t.shared || t.late {
		return nil
	}
	if _, leads := s.term(); !leads {
		return ErrNotLeader
	}
	early := t.At.Sub(s.Now())
	if early > s.clockLimit {
		return nil // which is refused
	}
	if early > t.Period/2 {
		r.job.pursue(t)
		return ErrEarly
	}
	wait := max(early, 0)
	if s.elector == nil {
		wait += rand.N(min(t.Period/20, 50*time.Millisecond) + 1)
	}
	if !s.pause(r.ctx, wait) {
		return cmp.Or(context.Cause(r.ctx), core.ErrClosed)
	}
	return nil
}

// inTime says whether the tick is over, or far from due, or the clock too far off to tell. The misfire grace is for the first attempt;
// those after it may come for as long as the one before is on record.
func (r *Claim) inTime() error {
	s, p := r.job.service, r.job.policy
	if offset, _ := s.ClockOffset(); offset.Abs() > s.clockLimit {
		return fmt.Errorf("%w: the nodes' clocks are ahead of this replica's by %v", ErrClock, offset.Round(time.Millisecond))
	}
	limit := p.grace
	if r.attempt > 1 || r.attempt == 0 && r.tick.late {
		limit = r.job.rerunnable(r.tick)
	}
	switch late := s.Now().Sub(r.tick.At); {
	case r.tick.At.IsZero():
	case late > limit:
		return fmt.Errorf("%w: it is late by %v", ErrMissed, late.Round(time.Millisecond))
	case -late > s.clockLimit: // the host has called for a tick of the future
		return fmt.Errorf("%w: it is due in %v", ErrNotDue, -late.Round(time.Millisecond))
	}
	return nil
}

// retention is for how long the records of a tick are kept: as many as suit the period, if nothing else was said.
func (j *Job) retention(t tick) time.Duration {
	p := j.policy
	if t.trigger != "" {
		return max(p.retention, day+2*j.service.clockLimit) // for as long as the id is known
	}
	if p.retention > 0 {
		return p.retention
	}
	return max(p.least(j.service.clockLimit), min(max(keptTicks*min(t.Period, time.Hour), time.Hour), 24*time.Hour))
}

// keptTicks are those whose records are kept by default.
const keptTicks = 3600

// rerunnable is for how long after its instant a tick may be started again.
func (j *Job) rerunnable(t tick) time.Duration {
	return max(j.policy.grace, j.retention(t)-2*j.service.clockLimit)
}

// briefly bounds how long Claim waits for what is only held for a moment: a gap, or an attempt, that is about to be
// recorded.
func (r *Claim) briefly() time.Duration {
	return max(min(r.tick.Period/2, time.Second), 10*time.Millisecond)
}

// acquire takes a lease, waiting for at most wait, which may be 0.
func (r *Claim) acquire(key string, wait time.Duration, opts ...core.CallOption) (*core.Lease, error) {
	opts = append([]core.CallOption{core.Detached(true), core.Name(r.job.name), core.Note(r.job.service.self),
		core.Retention(r.job.retention(r.tick)), core.MaxWait(wait)}, opts...)
	if wait == 0 {
		return r.job.service.locker.TryAcquire(r.term, key, opts...)
	}
	return r.job.service.locker.Acquire(r.term, key, opts...)
}

// takeGap has the nodes tell whether it is time for the next start, and which tick that is.
func (r *Claim) takeGap() error {
	t := &r.tick
	if t.Gap == 0 || t.shared {
		return nil
	}
	left := t.Gap - r.job.service.clock().Sub(t.At) // the gap counts from the tick, not from when it was claimed
	lease, err := r.acquire(r.job.key(t.gapKey()...), r.briefly(), core.Retention(max(left, time.Millisecond)))
	var op *core.OpError
	if errors.Is(err, core.ErrDone) && errors.As(err, &op) {
		t.adopt(op.Record)
	}
	if err != nil {
		return err
	}
	if err := r.complete(lease, started); err != nil {
		return err
	}
	t.shared = t.id != ""
	return nil
}

// adopt makes it the tick that another replica has started.
func (t *tick) adopt(of *core.Record) {
	if at, err := startedTick(of); err == nil && t.id != "" {
		t.At, t.id, t.shared = at, stamp(at), true
	}
}

// startedTick is the tick that a gap's record names.
func startedTick(of *core.Record) (time.Time, error) {
	r, _ := parseRecord(of.Result)
	return time.Parse(time.RFC3339Nano, r.Tick)
}

func (r *Claim) takeTick() (err error) {
	if r.tick.id != "" {
		r.tickLease, err = r.acquire(r.job.key(r.tick.key()...), 0)
	}
	return err
}

// takeAttempt takes the first attempt that is not recorded. Where all are, the tick is over.
func (r *Claim) takeAttempt() (err error) {
	for r.attempt = 1; r.tick.id != ""; r.attempt++ {
		if r.attempt > r.job.policy.attempts {
			r.attempt--
			return errors.Join(fmt.Errorf("%w: it was started %d times", errAbandoned, r.attempt), r.settle(Abandoned))
		}
		r.attemptLease, err = r.acquire(r.job.key(r.tick.attemptKey(r.attempt)...), r.briefly())
		if !errors.Is(err, core.ErrDone) {
			return err
		}
	}
	return nil
}

// takeJob takes the job, so that no two runs overlap.
func (r *Claim) takeJob() (err error) {
	var wait time.Duration
	if r.attempt > 1 {
		wait = r.briefly() // a dead holder's lease on the job ends with that on the tick, but for a moment
	}
	switch r.job.policy.overlap {
	case Allow:
		return nil
	case Replace:
		r.replaceOthers()
		wait = max(wait, min(r.tick.Period/2, 10*time.Second))
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
	case r.job.catchesUp():
		r.tick.deferred = true
		return err
	}
	r.attempt = 0
	return errors.Join(err, r.settle(Skipped))
}

// catchesUp reports whether a run goes on in this process that is late for want of a leader or of nodes. What falls due
// meanwhile follows it, and is not skipped; but what falls due while that runs, is: there is no queue.
func (j *Job) catchesUp() bool {
	return slices.ContainsFunc(j.runs(), func(r *Claim) bool { return r.tick.late && !r.tick.deferred && r.tick.trigger == "" })
}

// settle records the end of a tick that does not run.
func (r *Claim) settle(outcome Outcome) error {
	r.settled = true
	return r.complete(r.tickLease, outcome)
}

// recordFor is for how long a record is tried to be written while its outcome is open.
const recordFor = time.Second

// complete writes a record. It takes no cancelled context for an answer.
func (r *Claim) complete(lease *core.Lease, outcome Outcome) error {
	s := r.job.service
	result := record{r.tick.id, s.self, outcome, r.attempt, r.began, s.clock().UTC().Round(0)}.bytes()
	return completeIn(r.ctx, lease, result)
}

// completeIn writes a record within recordFor, also where ctx has ended.
func completeIn(ctx context.Context, lease *core.Lease, result []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer cancel()
	return lease.Complete(ctx, result)
}

// release gives back the leases that are not nil, all at once.
func (r *Claim) release(leases ...*core.Lease) {
	var wg sync.WaitGroup
	for _, lease := range leases {
		wg.Go(func() { lease.Release(r.ctx) }) // core logs what it cannot confirm, and goes on trying
	}
	wg.Wait()
}

// unprotected returns a claim without leases, if the run is to start anyway.
func (r *Claim) unprotected(why error) *Claim {
	j := r.job
	if !r.anyway(why) || !j.service.gate.Enter() {
		return nil
	}
	bare := &Claim{job: j, tick: r.tick, scheduled: r.scheduled, ctx: r.ctx, term: r.ctx, leave: j.service.gate.Leave, attempt: 1}
	bare.prepare()
	j.service.locker.Logger().Warn("tick: runs unprotected, on every replica that the tick reaches", "job", j.name, "tick", r.tick.id, "err", why)
	j.mu.Lock()
	if r.tick.At.After(j.bare) {
		j.bare = r.tick.At
	}
	j.mu.Unlock()
	bare.event(EventUnprotected)
	return bare
}
