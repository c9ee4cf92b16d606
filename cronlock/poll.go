package cronlock

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/lockkit/lockkit/core"
)

const (
	// pollAfterHost is how long after a tick the engine polls a job whose cron library calls at the ticks.
	pollAfterHost = time.Second
	// hostTimeout is how long after a request to the host the engine polls again: the host may have dropped the call.
	hostTimeout = 5 * time.Second
	// maxPollInterval is the longest pause between polls, because timers notice neither a suspended machine nor a
	// changed clock.
	maxPollInterval = time.Minute
)

// poll makes the host call if a tick may be due. Without a host it runs the tick itself. It returns when the run, or
// the request to the host, is over.
func (j *Job) poll() {
	defer j.recoverPanic()

	if j.isHostGone() {
		j.Remove()
	}
	if j.removed.Err() != nil {
		return
	}

	j.service.refreshClocks(j)
	due, _ := j.latest(j.service.now().Add(dueTolerance))
	defer j.schedulePoll(due)

	switch {
	case !j.mayStart(due):
		// There is nothing to start here.
	case j.polling.Load() > 0:
		// A call of the host is polling.
		j.poller.pollWithin(hostTimeout)
	case j.host == nil:
		// RunDue logs its own failures.
		_ = j.RunDue(context.WithoutCancel(j.removed))
	default:
		j.poller.pollWithin(hostTimeout + jitter())
		j.host.RequestCall()
	}
}

// mayStart reports whether the tick due may have to be started on this replica now, as far as this process knows
// without sending a request.
func (j *Job) mayStart(due time.Time) bool {
	if due.IsZero() || j.activeRuns.Load() > 0 {
		return false
	}
	return j.skipReason(due) == nil && j.service.isLeading()
}

// schedulePoll schedules the poll for the tick that follows the last poll's tick: when it is due, or a moment later if
// a cron library calls for it. That tick may be due already, if the poll took long.
func (j *Job) schedulePoll(polled time.Time) {
	now, after := j.service.now(), polled
	// The nodes' clocks may have turned out to be behind the last estimate.
	if polled.IsZero() || now.Before(polled) {
		after = now
	}

	next := j.schedule.Next(after)
	wait := min(next.Sub(now), maxPollInterval)
	if j.hostCalls && next.Sub(now) <= maxPollInterval {
		wait += pollAfterHost + jitter()
	}
	// Otherwise there is no next tick, or the schedule contradicts itself.
	if next.After(after) {
		j.poller.pollWithin(wait)
	}
}

// refreshClocks reads the nodes' clocks once a minute, with a request for the key of j. Every reply reports a clock,
// but the clocks may have been wrong for a moment, and the last other request may have been sent in that moment.
func (s *Service) refreshClocks(j *Job) {
	now, readAt := time.Now(), s.clocksReadAt.Load()
	_, known := s.locker.ClockOffset()
	isRecent := now.Sub(*readAt) < maxPollInterval
	if known && isRecent {
		return
	}

	first := s.clocksReadAt.CompareAndSwap(readAt, &now)
	if known && !first {
		// Another job is reading the clocks.
		return
	}
	_, _ = s.locker.Inspect(j.removed, j.runKey())
}

// skipReason returns the reason for which the tick due must not be started while it is the latest, or nil if this
// process knows none. It sends no request.
func (j *Job) skipReason(due time.Time) error {
	if e, _ := j.memory.lookup(due); e.isFinal() {
		return core.ErrDone
	}

	began, reason := j.memory.lateReason(due)
	// The tick is not too late any more if the clock was wrong when it was found too late.
	if reason == nil || j.timeAt(began).Sub(due) <= j.grace {
		return nil
	}
	return reason
}

// recoverPanic logs a panic of the function, of the schedule or of the host in a poll, so that it does not end the
// process.
func (j *Job) recoverPanic() {
	if p := recover(); p != nil {
		j.log(slog.LevelError, "cronlock: a run panicked", "panic", p, "stack", string(debug.Stack()))
		j.poller.pollWithin(maxPollInterval)
	}
}
