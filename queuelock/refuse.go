package queuelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
)

// ErrNotRun matches the error of a delivery whose handler was not called, because a key was held
// ([core.ErrHeld]) or the locks were out of reach ([core.ErrUnavailable], [core.ErrClosed]). The task is
// delivered again later, and no retry is counted.
var ErrNotRun = errors.New("not run")

// A notRunError is what asynq is told of a task that was not run. Configure has it heeded.
type notRunError struct {
	error               // matches ErrNotRun and says why
	after time.Duration // 0: asynq archives the task
	quiet bool          // nothing that anybody has to look at
	event core.EventKind
}

func (e *notRunError) Unwrap() error { return e.error }

// refusals are what has a task come back later, after the time that core says, if it can.
var refusals = map[core.Class]notRunError{
	core.ClassHeld:        {event: EventContended, after: time.Second, quiet: true},
	core.ClassUnavailable: {event: EventUnavailable, after: 10 * time.Second},
	core.ClassClosed:      {event: EventUnavailable, after: 10 * time.Second},
}

// refuse returns what asynq is told when the leases were not to be had.
func (d *delivery) refuse(ctx context.Context, err error) error {
	op, _ := errors.AsType[*core.OpError](err)
	class := core.ClassOf(err)
	refusal, back := refusals[class]
	switch {
	case class == core.ClassDone && op.Key == d.keys[0]:
		d.duplicate(ctx, op.Record)
		return nil
	case errors.Is(err, errLastMoment):
		d.event(ctx, EventArchived)
		d.log(ctx).Error("queuelock: a task could not be run before the deadline of its last attempt: asynq archives it, from where it can be run (asynq task run); a larger MaxRetry or Timeout avoids this", "error", err)
		return &notRunError{error: fmt.Errorf("queuelock: %w: %w", ErrNotRun, err)}
	case !back, errors.Is(err, context.DeadlineExceeded): // the task's own deadline, which fails it
		return fmt.Errorf("queuelock: not run: %w", err)
	case class == core.ClassClosed && d.last: // this process is ending, and asynq puts the task back when it shuts down
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(d.until)):
		}
	}
	d.event(ctx, refusal.event)
	refusal.after = later(cmp.Or(op.RetryAfter, refusal.after))
	refusal.error = fmt.Errorf("queuelock: %w, to be delivered again in %v: %w", ErrNotRun, refusal.after.Round(time.Millisecond), err)
	return &refusal
}

// duplicate says that a task was not run because it is completed. It may be a new task under an id that was used before,
// which nobody but the producer can tell: see lookForStamp.
func (d *delivery) duplicate(ctx context.Context, record *core.Record) {
	d.event(ctx, EventDuplicate)
	d.log(ctx).Info("queuelock: duplicate delivery of a completed task, not run", "completed", string(record.Result))
}

// later is a time shortly after rest has passed. Jitter keeps those who wait for one key from coming back
// together; the second makes up for asynq, which cuts it down to whole seconds.
func later(rest time.Duration) time.Duration {
	rest = max(rest, time.Second)
	return rest + rand.N(rest/2) + time.Second
}
