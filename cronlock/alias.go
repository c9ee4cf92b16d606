package cronlock

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/cronlock/tick"
)

// What belongs to ticks and not to gocron is that of package tick, under the same names.
type (
	// Run describes the run that a context belongs to.
	Run = tick.Run
	// TickError says why a replica did not run a tick. It reaches gocron's AfterLockError.
	TickError = tick.Error
	// Overlap says what happens to a tick while an earlier run of its job goes on, on whatever replica.
	Overlap = tick.Overlap
)

// Overlap policies.
const (
	Forbid  = tick.Forbid
	Allow   = tick.Allow
	Replace = tick.Replace
)

// Why a replica does not run a tick, beside core's sentinels: core.ErrHeld (it runs elsewhere), core.ErrDone (it has run),
// core.ErrUnavailable (no quorum of nodes), core.ErrClosed (the Cron or its Locker is closed). What a run's context may end
// with, beside core's ErrLost and gocron's cancellation: ErrReplaced and ErrLeadershipLost.
var (
	ErrNotLeader      = tick.ErrNotLeader
	ErrMissed         = tick.ErrMissed
	ErrEarly          = tick.ErrEarly
	ErrClock          = tick.ErrClock
	ErrOverlap        = tick.ErrOverlap
	ErrPaused         = tick.ErrPaused
	ErrReplaced       = tick.ErrReplaced
	ErrLeadershipLost = tick.ErrLeadershipLost
	// ErrNotDue: gocron has run the job when no tick was due. Its RunNow does so before the first tick; use that of Job.
	ErrNotDue = tick.ErrNotDue
)

// Kinds of events that [core.Observer.Event] hears, with source "cronlock" and the job as name. Those of elections are in
// package leader.
const (
	EventRun         = tick.EventRun
	EventRerun       = tick.EventRerun
	EventRetried     = tick.EventRetried
	EventHeld        = tick.EventHeld
	EventDone        = tick.EventDone
	EventOverlap     = tick.EventOverlap
	EventPaused      = tick.EventPaused
	EventMissed      = tick.EventMissed
	EventNotLeader   = tick.EventNotLeader
	EventUnavailable = tick.EventUnavailable
	EventUnprotected = tick.EventUnprotected
	EventRefused     = tick.EventRefused
	EventSkipped     = tick.EventSkipped
	EventLost        = tick.EventLost
	EventReplaced    = tick.EventReplaced
	EventUnrecorded  = tick.EventUnrecorded
)

// IsExpected is [tick.IsExpected].
func IsExpected(err error) bool { return tick.IsExpected(err) }

// NewContext is [tick.NewContext].
func NewContext(ctx context.Context, r Run) context.Context { return tick.NewContext(ctx, r) }

// FromContext is [tick.FromContext].
func FromContext(ctx context.Context) (Run, bool) { return tick.FromContext(ctx) }

// WithOverlap is [tick.WithOverlap].
func WithOverlap(o Overlap) JobOption { return policy(tick.WithOverlap(o)) }

// AtMostOnce is [tick.AtMostOnce].
func AtMostOnce() JobOption { return policy(tick.AtMostOnce()) }

// AtLeastOnce is [tick.AtLeastOnce].
func AtLeastOnce(attempts int) JobOption { return policy(tick.AtLeastOnce(attempts)) }

// WithMisfireGrace is [tick.WithMisfireGrace].
func WithMisfireGrace(d time.Duration) JobOption { return policy(tick.WithMisfireGrace(d)) }

// WithCatchUp is [tick.WithCatchUp].
func WithCatchUp(n int) JobOption { return policy(tick.WithCatchUp(n)) }

// WithMinGap is [tick.WithMinGap]. Set it where the gap that follows from the schedule does not fit, or for [Cron.Locker].
func WithMinGap(d time.Duration) JobOption {
	return jobOption(func(c *jobConfig) {
		c.gapped = d > 0
		policy(tick.WithMinGap(d)).applyJob(c)
	})
}

// WithRetention is [tick.WithRetention].
func WithRetention(d time.Duration) JobOption { return policy(tick.WithRetention(d)) }

// WithRetry is [tick.WithRetry].
func WithRetry(times int, backoff time.Duration) JobOption {
	return policy(tick.WithRetry(times, backoff))
}

// WithKey is [tick.WithKey].
func WithKey(key string) JobOption { return policy(tick.WithKey(key)) }

// WithRunAnyway is [tick.WithRunAnyway].
func WithRunAnyway(on bool) JobOption { return policy(tick.WithRunAnyway(on)) }

// WithElector is [tick.WithElector]: gocron itself ignores a locker beside an elector.
func WithElector(e *leader.Elector) Option { return ofService(tick.WithElector(e)) }

// WithTriggerPoll is [tick.WithTriggerPoll].
func WithTriggerPoll(d time.Duration) Option { return ofService(tick.WithTriggerPoll(d)) }

// WithClockLimit is [tick.WithClockLimit].
func WithClockLimit(d time.Duration) Option { return ofService(tick.WithClockLimit(d)) }
