package cronlock

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/lockkit/lockkit/core"
)

const (
	// lookLate is how long after a tick the job is looked at where a cron library calls at the ticks.
	lookLate = time.Second
	// lookAgain is how long after a call of the host it is looked at: the host may have dropped the call.
	lookAgain = 5 * time.Second
	// lookAnyway is the longest pause: a timer does not see that its machine sleeps, or that a clock was set.
	lookAnyway = time.Minute
)

// look calls the host if there may be something to start. Without a host it starts that itself. It ends when the run has
// ended, or the call of the host.
func (j *Job) look() {
	defer j.recovered()
	if j.host != nil && j.host.Gone() {
		j.Remove()
	}
	if j.gone.Err() != nil {
		return
	}
	j.service.hearClocks(j)
	due, _ := j.latest(j.service.now().Add(slack))
	defer j.lookAtNext(due)
	switch {
	case due.IsZero() || j.held.Load() > 0 || j.settled(due) != nil || !j.service.leads():
	case j.looking.Load() > 0: // a call of the host does that
		j.looks.within(lookAgain)
	case j.host == nil:
		_ = j.RunDue(context.WithoutCancel(j.gone)) // what keeps it from starting is logged there
	default:
		j.looks.within(lookAgain + jitter())
		j.host.Ask()
	}
}

// lookAtNext makes the job be looked at when the tick is due that follows the one of the last look, or a moment later where
// a cron library calls for it. That tick may be due already, if the look took its time.
func (j *Job) lookAtNext(looked time.Time) {
	now, after := j.service.now(), looked
	if looked.IsZero() || now.Before(looked) { // by what is known of the nodes' clocks now
		after = now
	}
	next := j.schedule.Next(after)
	wait := min(next.Sub(now), lookAnyway)
	if j.calls && next.Sub(now) <= lookAnyway {
		wait += lookLate + jitter()
	}
	if next.After(after) { // else there is none; or the schedule names other instants than before
		j.looks.within(wait)
	}
}

// hearClocks asks the nodes for their clocks once a minute. Every answer tells a clock, but those that are known may have
// been wrong for a moment, in which something was last asked.
func (s *Service) hearClocks(j *Job) {
	now, asked := time.Now(), s.asked.Load()
	_, known := s.locker.ClockOffset()
	if known && now.Sub(*asked) < lookAnyway {
		return
	}
	first := s.asked.CompareAndSwap(asked, &now)
	if known && !first { // another job asks
		return
	}
	_, _ = s.locker.Inspect(j.gone, j.runKey())
}

// settled returns why there is nothing to start as long as a tick is the latest, as far as this process knows without asking.
func (j *Job) settled(due time.Time) error {
	if e, known := j.memory.of(due); known && e.started() && e.state == over {
		return core.ErrDone
	}
	at, why := j.memory.wasPassed(due)
	if why == nil || j.then(at).Sub(due) <= j.grace { // the clock was wrong when the tick was too late
		return nil
	}
	return why
}

// recovered keeps a panic of a run that the engine began, of the schedule or of the host from ending the process.
func (j *Job) recovered() {
	if p := recover(); p != nil {
		j.log(slog.LevelError, "cronlock: a run panicked", "panic", p, "stack", string(debug.Stack()))
		j.looks.within(lookAnyway)
	}
}
