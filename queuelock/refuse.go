package queuelock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// ErrNotRun matches the error of a delivery whose handler was not called, because a key was held
// ([core.ErrHeld]) or the locks were out of reach ([core.ErrUnavailable], [core.ErrClosed]), or whose handler returned
// Cooldown. The task is delivered again later, and no retry is counted; on its last attempt asynq archives it instead.
var ErrNotRun = errors.New("not run")

// A notRunError is what asynq is told of a task that was not run. Configure has it heeded.
type notRunError struct {
	error               // matches ErrNotRun and says why
	after time.Duration // without meaning where asynq archives the task
	quiet bool          // nothing that anybody has to look at
}

func (e *notRunError) Unwrap() error { return e.error }

// back returns what has asynq deliver the task again after a time.
func back(after time.Duration, quiet bool, err error) error {
	return &notRunError{fmt.Errorf("queuelock: %w, to be delivered again in %v: %w", ErrNotRun, after.Round(time.Millisecond), err), after, quiet}
}

// refuse returns what asynq is told when the leases were not to be had.
func (d *delivery) refuse(ctx context.Context, err error) error {
	op, _ := errors.AsType[*core.OpError](err)
	switch class := core.ClassOf(err); {
	case class == core.ClassDone && op.Key == d.keys[0]:
		d.duplicate(ctx, op.Record)
		return nil
	case errors.Is(err, errLastMoment):
		return d.unrun(ctx, err)
	case errors.Is(err, context.DeadlineExceeded), class == core.ClassCancelled: // the task's own deadline fails it
		return fmt.Errorf("queuelock: not run: %w", err)
	case class == core.ClassHeld && d.skips(op.Key):
		d.event(ctx, EventSkipped)
		d.log(ctx).Info("queuelock: a task was skipped, because its key is held", "err", err)
		return nil
	case class == core.ClassHeld:
		d.event(ctx, EventContended)
		return back(d.away(op), true, err)
	case (class == core.ClassUnavailable || class == core.ClassLost) && d.last:
		return d.unrun(ctx, err)
	case class == core.ClassUnavailable || class == core.ClassLost:
		d.event(ctx, EventUnavailable)
		return back(0, !d.wiring.alarms.Allow(), err)
	case class == core.ClassClosed:
		return d.closed(ctx, err)
	}
	return d.unfit(ctx, err)
}

// away is for how long a task is away whose key is held: what those before it may take.
func (d *delivery) away(op *core.OpError) time.Duration {
	if op.Held == core.HeldRests {
		return shortlyAfter(op.RetryAfter)
	}
	return d.wiring.absent.send(op.Key, d.keys[0], d.wiring.before(op.Key), d.pace, d.wiring.slack)
}

// closed returns what asynq is told when the Locker is closed. This process is ending, and asynq puts the task back when
// it shuts down; if it does not before the last moment, it archives a last attempt.
func (d *delivery) closed(ctx context.Context, err error) error {
	if d.last && pause.For(ctx, time.Until(d.deadline.tell)) {
		return d.unrun(ctx, err)
	}
	d.event(ctx, EventUnavailable)
	return back(shortlyAfter(10*time.Second), false, err)
}

// unrun returns what asynq is told of a last attempt that came to its deadline.
func (d *delivery) unrun(ctx context.Context, err error) error {
	return d.archive(ctx, "queuelock: a task could not be run on its last attempt: asynq archives it, from where it can be run (asynq task run); a larger MaxRetry or Timeout avoids this", err)
}

// archive returns what asynq is told of a task that it archives whatever it is told.
func (d *delivery) archive(ctx context.Context, msg string, err error) error {
	d.event(ctx, EventArchived)
	d.log(ctx).Error(msg, "err", err)
	return &notRunError{error: fmt.Errorf("queuelock: %w: %w", ErrNotRun, err)}
}

// unfit returns what asynq is told of a task that cannot be run as it is: no key can be made of it. It is retried like any
// that failed.
func (d *delivery) unfit(ctx context.Context, err error) error {
	d.event(ctx, EventUnfit)
	d.log(ctx).Error("queuelock: a task cannot be run: it counts as failed, and is archived when its retries are used up. Where tasks of this type need no key, say so by ForType or Optional", "err", err)
	return fmt.Errorf("queuelock: not run: %w", err)
}

// duplicate says that a task was not run because it is completed. It may be a new task under an id that was used before,
// which nobody but the producer can tell.
func (d *delivery) duplicate(ctx context.Context, record *core.Record) {
	d.event(ctx, EventDuplicate)
	msg := "queuelock: duplicate delivery of a completed task, not run"
	if d.unstamped(ctx) {
		msg += "; a new task under an id that was used before needs a stamp (queuelock.Stamp)"
	}
	d.log(ctx).Info(msg, "completed", string(record.Result))
}

// shortlyAfter is a time shortly after rest has passed. Jitter keeps those who wait for one key from coming back together; the
// second makes up for asynq, which cuts it down to whole seconds.
func shortlyAfter(rest time.Duration) time.Duration {
	return rest + rand.N(max(rest/8, time.Second)) + time.Second
}
