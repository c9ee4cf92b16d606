package cronlock

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/lockkit/lockkit/internal/stall"
)

const (
	// lookLate is how long after a tick the job is looked at where a host should have called for it.
	lookLate = time.Second
	// lookAgain is how long after a call of the host it is looked at: the host may have dropped the call.
	lookAgain = 5 * time.Second
	// lookAnyway is the longest pause: a timer does not see that its machine sleeps, or that a clock was set.
	lookAnyway = time.Minute
)

// lookAtNext makes the job be looked at when the tick is due that follows the one of the last look, or a moment later where
// a host calls for it. That tick may be due already, if the look took its time.
func (j *Job) lookAtNext(looked time.Time) {
	now, after := j.service.now(), looked
	if looked.IsZero() || now.Before(looked) { // by what is known of the nodes' clocks now
		after = now
	}
	next := j.schedule.Next(after)
	wait := min(next.Sub(now), lookAnyway)
	if j.host != nil && next.Sub(now) <= lookAnyway {
		wait += lookLate + jitter()
	}
	if next.After(after) { // else there is none; or the schedule names other instants than before
		j.lookIn(wait)
	}
}

// look calls the host if there may be something to start. Without a host it starts that itself.
func (j *Job) look() {
	stall.At(stall.Timer, stall.Anywhere, j)
	j.mu.Lock()
	j.when = time.Time{}
	j.mu.Unlock()
	defer j.recovered()
	// Every answer tells a clock. Those that are known may have been wrong for a moment, in which something was last asked.
	now, asked := time.Now(), j.service.asked.Load()
	if _, known := j.service.locker.ClockOffset(); !known || now.Sub(*asked) >= lookAnyway && j.service.asked.CompareAndSwap(asked, &now) {
		_, _ = j.service.locker.Inspect(j.gone, j.runKey())
	}
	due, _ := latest(j.schedule, j.service.now().Add(slack))
	defer j.lookAtNext(due)
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

// recovered keeps a panic of a run that the engine began, of the schedule or of the host from ending the process.
func (j *Job) recovered() {
	if p := recover(); p != nil {
		j.service.locker.Logger().Error("cronlock: a run panicked", "job", j.name, "panic", p, "stack", string(debug.Stack()))
		j.lookIn(lookAnyway)
	}
}

// warn logs why the engine could not start anything: once, until it can.
func (j *Job) warn(err error) {
	e, refused := err.(*Error) //nolint:errorlint // the function's error may wrap one
	if refused && IsExpected(e) {
		return
	}
	if before := j.warned.Swap(refused); refused && !before {
		j.service.locker.Logger().Warn("cronlock: a tick cannot start", "job", j.name, "err", e.Err) // a key is in the text of e
	}
}
