package cronlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// mostTicks is how many ticks a job looks back, and for how many the records last.
const mostTicks = 100

// A choice is what a look has found to start.
type choice struct {
	entry
	previous   time.Time // the last tick before that completed without an error
	superseded int       // ticks between it and the latest one before that was started
}

// choose decides what is to start, for a replica that holds the job's lease: the latest tick that was started, once more,
// if that is owed; otherwise the latest tick that is due by the nodes' clocks. Runs do not overlap, and an orphan goes
// first, so nothing is owed of the ticks before the latest that was started.
func (j *Job) choose(ctx context.Context, due time.Time) (c choice, err error) {
	c.tick = due
	lastStart := -1
	for i, e := range j.back(ctx, due, &err) {
		if i == 0 {
			c.entry = e
		}
		if e.state != free && lastStart < 0 {
			lastStart = i
			if e.state == orphan {
				c.entry = e
			}
		}
		if e.completed() && e.tick.Before(c.tick) {
			c.previous = e.tick
		}
		if !c.previous.IsZero() || lastStart == 0 && c.state == over {
			break
		}
	}
	switch {
	case err != nil:
	case c.state == over:
		err = core.ErrDone
	case c.state == free && j.service.now().Sub(due) > j.grace:
		err = ErrMissed
	case c.state == free:
		c.superseded = max(lastStart-1, 0)
	}
	return c, err
}

// back reads the entries of a tick and of those before it, at most mostTicks, one after the other at first and then ten at
// once: usually the second was started.
func (j *Job) back(ctx context.Context, from time.Time, failed *error) func(yield func(int, entry) bool) {
	return func(yield func(int, entry) bool) {
		tick := from
		for i, n := 0, 1; i < mostTicks && !tick.IsZero(); n = min(10, mostTicks-i) {
			if i == 1 {
				n = 1
			}
			var ticks []time.Time
			for ; len(ticks) < n && !tick.IsZero(); tick = before(j.schedule, tick) {
				ticks = append(ticks, tick)
			}
			entries, err := j.entries(ctx, ticks)
			if err != nil {
				*failed = err
				return
			}
			for _, e := range entries {
				if !yield(i, e) {
					return
				}
				i++
			}
		}
	}
}

// entries reads several at once.
func (j *Job) entries(ctx context.Context, ticks []time.Time) ([]entry, error) {
	all, errs := make([]entry, len(ticks)), make([]error, len(ticks))
	var wg sync.WaitGroup
	for i, t := range ticks {
		wg.Go(func() { all[i], errs[i] = j.entry(ctx, t) })
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

const (
	// lookLate is how long after a tick the job is looked at where a host should have called for it.
	lookLate = time.Second
	// lookAgain is how long after a call of the host it is looked at: the host may have dropped the call.
	lookAgain = 5 * time.Second
	// retry is the pause after a failure.
	retry = time.Second
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
	if j.timer != nil {
		j.timer.Stop()
	}
	j.when = when
	j.timer = time.AfterFunc(max(d, 0), func() { j.service.gate.Go(j.look) })
}

// lookAtNext makes the job be looked at when its next tick is due, or a moment later where a host calls for it.
func (j *Job) lookAtNext() {
	now := j.service.now()
	next := j.schedule.Next(now)
	if !next.After(now) { // there is none; or the schedule names other instants than before
		return
	}
	wait := next.Sub(now)
	if j.host != nil {
		wait += lookLate + jitter()
	}
	j.lookIn(wait)
}

// look calls the host if there may be something to start. Without a host it starts that itself.
func (j *Job) look() {
	j.mu.Lock()
	j.when = time.Time{}
	j.mu.Unlock()
	defer j.lookAtNext()
	due, _ := latest(j.schedule, j.service.now().Add(slack))
	if due.IsZero() || j.isSettled(due) || j.running.Load() > 0 || j.gone.Err() != nil || !j.service.leads() {
		return
	}
	defer j.recovered()
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
func (j *Job) settle(tick time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.settled = tick
}

func (j *Job) isSettled(tick time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.settled.Equal(tick)
}
