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
	pollAfterHost = time.Second
	// lookAgain is how long after a call of the host it is looked at: the host may have dropped the call.
	hostTimeout = 5 * time.Second
	// lookAnyway is the longest pause: a timer does not see that its machine sleeps, or that a clock was set.
	maxPollInterval = time.Minute
)

// look calls the host if there may be something to start. Without a host it starts that itself. It ends when the run has
// ended, or the call of the host.
func (j *Job) poll() {
	defer j.recoverPanic()
	if j.host != nil && j.host.IsRemoved() {
		j.Remove()
	}
	if j.removed.Err() != nil {
		return
	}
	j.service.refreshClocks(j)
	due, _ := j.latest(j.service.now().Add(dueTolerance))
	defer j.schedulePoll(due)
	switch {
	case due.IsZero() || j.activeRuns.Load() > 0 || j.skipReason(due) != nil || !j.service.isLeading():
	case j.polling.Load() > 0: // a call of the host does that
		j.poller.pollWithin(hostTimeout)
	case j.host == nil:
		_ = j.RunDue(context.WithoutCancel(j.removed)) // what keeps it from starting is logged there
	default:
		j.poller.pollWithin(hostTimeout + jitter())
		j.host.RequestCall()
	}
}

// lookAtNext makes the job be looked at when the tick is due that follows the one of the last look, or a moment later where
// a cron library calls for it. That tick may be due already, if the look took its time.
func (j *Job) schedulePoll(looked time.Time) {
	now, after := j.service.now(), looked
	if looked.IsZero() || now.Before(looked) { // by what is known of the nodes' clocks now
		after = now
	}
	next := j.schedule.Next(after)
	wait := min(next.Sub(now), maxPollInterval)
	if j.hostCalls && next.Sub(now) <= maxPollInterval {
		wait += pollAfterHost + jitter()
	}
	if next.After(after) { // else there is none; or the schedule names other instants than before
		j.poller.pollWithin(wait)
	}
}

// hearClocks asks the nodes for their clocks once a minute. Every answer tells a clock, but those that are known may have
// been wrong for a moment, in which something was last asked.
func (s *Service) refreshClocks(j *Job) {
	now, asked := time.Now(), s.clocksReadAt.Load()
	_, known := s.locker.ClockOffset()
	if known && now.Sub(*asked) < maxPollInterval {
		return
	}
	first := s.clocksReadAt.CompareAndSwap(asked, &now)
	if known && !first { // another job asks
		return
	}
	_, _ = s.locker.Inspect(j.removed, j.runKey())
}

// settled returns why there is nothing to start as long as a tick is the latest, as far as this process knows without asking.
func (j *Job) skipReason(due time.Time) error {
	if e, known := j.memory.lookup(due); known && e.isStarted() && e.state == tickOver {
		return core.ErrDone
	}
	at, why := j.memory.lateReason(due)
	if why == nil || j.timeAt(at).Sub(due) <= j.grace { // the clock was wrong when the tick was too late
		return nil
	}
	return why
}

// recovered keeps a panic of a run that the engine began, of the schedule or of the host from ending the process.
func (j *Job) recoverPanic() {
	if p := recover(); p != nil {
		j.log(slog.LevelError, "cronlock: a run panicked", "panic", p, "stack", string(debug.Stack()))
		j.poller.pollWithin(maxPollInterval)
	}
}
