package cronlock

import (
	"context"
	"iter"
	"math/rand/v2"
	"time"
)

// mostTicks is how many ticks a job looks back, and for how many the records last.
const mostTicks = 100

// back reads the entries of a tick and of those before it, at most mostTicks, one after the other: usually the second was
// started, and of many new jobs each reads far.
func (j *Job) back(ctx context.Context, tick time.Time) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		for n := 0; n < mostTicks && !tick.IsZero(); n++ {
			e, err := j.entry(ctx, tick)
			if !yield(e, err) || err != nil {
				return
			}
			tick, _ = latest(j.schedule, tick.Add(-1))
		}
	}
}

const (
	// lookLate is how long after a tick the job is looked at where a host should have called for it.
	lookLate = time.Second
	// lookAgain is how long after a call of the host it is looked at: the host may have dropped the call.
	lookAgain = 5 * time.Second
	// retry is the pause after a failure.
	retry = time.Second
	// lookAnyway is the longest pause: a timer does not see that its machine sleeps, or that a clock was set.
	lookAnyway = time.Minute
)

// jitter keeps looks of replicas and jobs apart.
func jitter() time.Duration { return rand.N(time.Second / 4) }

// lookIn makes the job be looked at after d, unless it is anyway before that.
func (j *Job) lookIn(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	when := time.Now().Add(d)
	if j.gone.Err() != nil || !j.when.IsZero() && j.when.Before(when) {
		return
	}
	j.when = when
	j.timer.Reset(max(d, 0))
}

// lookAtNext makes the job be looked at when its next tick is due, or a moment later where a host calls for it.
func (j *Job) lookAtNext() {
	now := j.service.now()
	next := j.schedule.Next(now)
	if !next.After(now) { // there is none; or the schedule names other instants than before
		return
	}
	wait := next.Sub(now)
	if j.host != nil && wait <= lookAnyway {
		wait += lookLate + jitter()
	} else {
		wait = min(wait, lookAnyway)
	}
	j.lookIn(wait)
}

// look calls the host if there may be something to start. Without a host it starts that itself.
func (j *Job) look() {
	j.mu.Lock()
	j.when = time.Time{}
	j.mu.Unlock()
	defer j.recovered()
	defer j.lookAtNext()
	due, _ := latest(j.schedule, j.service.now().Add(slack))
	if due.IsZero() || j.settled.Load() == due.UnixNano() || j.running.Load() > 0 || j.gone.Err() != nil || !j.service.leads() {
		return
	}
	if j.host == nil {
		j.warn(j.RunDue(context.WithoutCancel(j.gone))) // which looks again where that is worth it
		return
	}
	state, err := j.service.locker.Inspect(j.gone, j.runKey())
	switch {
	case err != nil:
		j.warn(&Error{Job: j.name, Err: err})
		j.lookIn(retry + jitter())
	case state.Holder != nil:
		j.lookIn(state.Holder.Left + jitter())
	default:
		j.lookIn(lookAgain + jitter())
		j.host()
	}
}

// settle notes that there is nothing to do for a tick that is the latest, by what the nodes have said.
func (j *Job) settle(tick time.Time) { j.settled.Store(tick.UnixNano()) }
