package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/jsonfield"
)

// conclude reports the end of the delivery, and returns the result for asynq. err is why the task could not be run, or
// the error of its handler.
func (d *delivery) conclude(ctx context.Context, err error) error {
	if d.state == parked {
		d.park(ctx)
	}

	switch d.state {
	case duplicate:
		d.report(ctx, EventDuplicate)
		d.logDuplicate(ctx, err)
		return nil

	// The task is given back: asynq delivers it again, and counts no retry.
	case contended:
		d.report(ctx, EventContended)
		return d.giveBack(ctx, err)
	case coolingDown:
		d.report(ctx, EventCooldown)
		return d.giveBack(ctx, err)
	case unavailable:
		d.report(ctx, EventUnavailable)
		return d.giveBack(ctx, err)

	case stale: // reported before
		return d.giveBack(ctx, err)

	// asynq does not deliver the task again.
	case archived:
		d.report(ctx, EventArchived)
		d.logger(ctx).Error("queuelock: a task could not be run on its last attempt: "+
			"asynq archives it, from where it can be run (asynq task run); a larger MaxRetry or Timeout avoids this",
			"err", err)
		return fmt.Errorf("queuelock: %w: %w", ErrNotRun, err)

	// asynq counts a retry.
	case keyInvalid:
		d.report(ctx, EventNoKey)
		d.logger(ctx).Error("queuelock: a task cannot be run: "+
			"it counts as failed, and is archived when its retries are used up; "+advice(err), "err", err)
		return fmt.Errorf("queuelock: not run: %w", err)

	// It is unknown whether asynq ended ctx. If so, it ignores the result.
	case cancelled:
		d.logger(ctx).Info("queuelock: the context of a task ended before it could be run: "+
			"if the application ended it, the task is given back. "+
			"If asynq ended it, asynq has taken the task back, and counts a retry", "cause", context.Cause(ctx))
		err := fmt.Errorf("its context has ended: %w", ctx.Err())
		return d.giveBack(context.WithoutCancel(ctx), err)

	case rejected:
		d.report(ctx, EventRefused)
		return fmt.Errorf("queuelock: the handler succeeded, but its completion was refused: "+
			"another delivery of the task has begun, which decides, "+
			"or too many lock nodes forgot whether one has: %w", err)
	}
	return err
}

// park keeps a last attempt in its worker after its context has ended, because asynq would archive the task if it got a
// result. If the application ended the context, the server is likely to shut down soon. asynq then puts the task back,
// and delivers it again. asynq does not report that, but the Locker is closed after it.
func (d *delivery) park(ctx context.Context) {
	deadline := time.NewTimer(time.Until(d.giveUpAt))
	defer deadline.Stop()
	warning := time.NewTimer(time.Second)
	defer warning.Stop()

	for d.state == parked {
		select {
		case <-warning.C: // asynq has not taken the task back
			d.logger(ctx).Warn("queuelock: the context of a task ended on its last attempt, before it could be run: "+
				"the task stays in its worker, because asynq would archive it. "+
				"If the server shuts down, asynq delivers it again; at its deadline, asynq archives it",
				"cause", context.Cause(ctx), "until", d.giveUpAt)
		case <-deadline.C:
			d.transition(onTimeUp)
		case <-d.reclaimed:
			d.transition(onContextEnd)
		case <-d.locker.Closing():
			d.transition(onClosed)
		}
	}
}

// logDuplicate logs that a task is not run because it has completed. It warns if that may be a mistake: a producer may
// give two tasks the same id although they are different work.
func (d *delivery) logDuplicate(ctx context.Context, err error) {
	// The record has the time of the completion and the type of the task.
	op, _ := errors.AsType[*core.OpError](err)
	completedAt, completedType, _ := strings.Cut(string(op.Record.Result), " ")
	log := d.logger(ctx).With("completed", completedAt)

	retried, _ := asynq.GetRetryCount(ctx)
	switch {
	case completedType != shortType(d.task.Type()):
		log.Warn("queuelock: a task is not run, because a task of another type has completed under the same id: "+
			"give them different ids, by making the type a part of queuelock.ID", "completed_type", completedType)
	case retried == 0 && isUUID(d.taskID(ctx)):
		log.Warn("queuelock: a task is not run, " +
			"because a task with the same id, queue, type and payload has completed: " +
			"either asynq delivered one task twice, " +
			"or a producer enqueued it again under an id that is a random UUID, as that of an order. " +
			"In that case, use queuelock.ID with what tells the tasks apart")
	default:
		log.Info("queuelock: duplicate delivery of a completed task, not run")
	}
}

// advice returns how to fix a task for which nothing can be locked.
func advice(err error) string {
	switch {
	case errors.Is(err, jsonfield.ErrAbsent):
		return "if tasks of this type need no key, use Optional or a Middleware without WithKey for them"
	case core.ClassOf(err) == core.ClassDone:
		return "another caller has completed its key, which is granted again after that caller's retention"
	}
	return "correct the payload or the key function, and then run the task from asynq's archive"
}

// giveBack returns the error that makes asynq deliver the task again: after the cooldown of its key, or else as soon as
// the server's limiter allows it. The worker waits for the limiter.
func (d *delivery) giveBack(ctx context.Context, err error) error {
	delay := cooldownOf(err)
	if delay > 0 {
		delay += time.Second // asynq counts in whole seconds, and may cut off one
	} else {
		_ = d.server.returnLimiter.Wait(ctx) // fails at once if the deadline would come first
	}

	err = fmt.Errorf("queuelock: %w, to be delivered again in %v: %w", ErrNotRun, delay.Round(time.Millisecond), err)
	return &notRunError{err, delay}
}
