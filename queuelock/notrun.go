package queuelock

import (
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

// outOfReach is when a task is delivered again if nobody can say when the locks are back.
const outOfReach = 10 * time.Second

// A notRunError is what asynq is told of a task that was not run. Configure has it heeded.
type notRunError struct {
	after time.Duration // 0: asynq archives the task
	quiet bool          // nothing that anybody has to look at
	err   error
}

func (e *notRunError) Error() string {
	if e.after == 0 {
		return fmt.Sprintf("queuelock: not run: %v", e.err)
	}
	return fmt.Sprintf("queuelock: not run, to be delivered again in %v: %v", e.after.Round(time.Millisecond), e.err)
}

func (e *notRunError) Unwrap() []error { return []error{ErrNotRun, e.err} }

// notRun is what asynq is told when the leases were not to be had.
func (d *delivery) notRun(ctx context.Context, err error) error {
	var op *core.OpError
	errors.As(err, &op)
	switch {
	case errors.Is(err, core.ErrDone) && op.Key == d.identity:
		d.duplicate(ctx, op.Record)
		return nil
	case errors.Is(err, errLastMoment):
		d.event(ctx, EventArchived)
		d.r.conf.logger.Error("queuelock: a task could not be run before the deadline of its last attempt: asynq archives it, from where it can be run (asynq task run); a larger MaxRetry or Timeout avoids this",
			d.attrs(ctx, "error", err)...)
		return &notRunError{err: err}
	case errors.Is(err, core.ErrHeld):
		d.event(ctx, EventContended)
		return &notRunError{after: later(op.RetryAfter), quiet: true, err: err}
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, core.ErrClosed):
		d.event(ctx, EventUnavailable)
		after := op.RetryAfter
		if after == 0 {
			after = outOfReach
		}
		return &notRunError{after: later(after), err: err}
	}
	return fmt.Errorf("queuelock: not run: %w", err)
}

// duplicate says that a task was not run because it is completed. On a first attempt that may be a new task
// under an id that was used before, which nobody but the producer can tell.
func (d *delivery) duplicate(ctx context.Context, record *core.Record) {
	d.event(ctx, EventDuplicate)
	attrs := d.attrs(ctx, "completed", string(record.Result))
	d.r.conf.logger.Info("queuelock: duplicate delivery of a completed task, not run", attrs...)
	if d.first {
		d.r.reused.Do(func() {
			d.r.conf.logger.Warn("queuelock: if this was a new task under an id that was used before, it has not been run: stamp such tasks with queuelock.Stamp", attrs...)
		})
	}
}

// later is a time shortly after rest has passed. Jitter keeps those who wait for one key from coming back
// together; the second makes up for asynq, which cuts it down to whole seconds.
func later(rest time.Duration) time.Duration {
	rest = max(rest, time.Second)
	return rest + rand.N(rest/2) + time.Second
}
