package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/jsonfield"
	"github.com/lockkit/lockkit/internal/pause"
)

// Middleware runs each task of next under its leases. It is an asynq.MiddlewareFunc:
//
//	mux.Use(m.Middleware)
//
// Only one Middleware may be on the way to a handler. Put it outside of middleware that must see only tasks that are run.
// The package document says what becomes of a task that cannot be run now.
func (m *Middleware) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		if err := checkContext(ctx); err != nil {
			m.logOnce(err.Error())
			return err
		}
		from := m.origin(ctx)
		ctx, stop := joinBase(ctx, from.baseCtx)
		defer stop()

		d, err := m.newDelivery(ctx, t, from)
		if err != nil {
			return err
		}
		held, err := d.acquire(ctx)
		if err != nil {
			return d.conclude(ctx, err)
		}

		settled := false
		defer func() {
			if !settled { // a method of the handler's error panicked, or a callback has ended the goroutine
				held.release(ctx)
			}
		}()
		err = d.finish(ctx, held, d.runHandler(ctx, held, next))
		settled = true
		return err
	})
}

// delivery returns that of a task. The error is what asynq is told if the task cannot be run.
func (m *Middleware) newDelivery(ctx context.Context, t *asynq.Task, from origin) (*delivery, error) {
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	d := &delivery{Middleware: m, task: t, origin: from, startedAt: time.Now(), lastAttempt: retried >= maxRetry}
	d.startRequest()
	deadline, _ := ctx.Deadline()
	remaining := time.Until(deadline)
	d.waitDeadline, d.giveUpAt = deadline.Add(-remaining/2), deadline.Add(-min(remaining/10, time.Second))
	if err := d.findKeys(ctx); err != nil {
		if ctx.Err() != nil { // maybe the reason why a key function failed
			d.transition(onContextEnd)
		} else {
			d.transition(onKeyInvalid)
		}
		return nil, d.conclude(ctx, err)
	}
	d.warnOfForeignID(ctx)
	return d, nil
}

// misused returns what is wrong with the way to the middleware.
func checkContext(ctx context.Context) error {
	if _, nested := FromContext(ctx); nested {
		return errors.New("queuelock: two middlewares are on the way to this handler: remove one")
	}
	_, delivered := asynq.GetRetryCount(ctx)
	if _, limited := ctx.Deadline(); !delivered || !limited {
		return errors.New("queuelock: no asynq.Server has made this context, or its deadline is gone: test handlers without the middleware, in a context of NewContext")
	}
	return nil
}

// maxForeign bounds of how many types it is said that their ids are foreign: types may be made up at run time.
const maxForeignTypes = 256

// warnOfForeignID says, at the first task of a type, that its completions are not remembered.
func (d *delivery) warnOfForeignID(ctx context.Context) {
	if d.recordsCompletion || d.foreignCount.Load() >= maxForeignTypes {
		return
	}
	if _, logged := d.foreignTypes.LoadOrStore(d.task.Type(), true); logged {
		return
	}
	d.foreignCount.Add(1)
	d.report(ctx, EventForeignID)
	d.logger(ctx).Warn("queuelock: tasks of this type have ids of their producer's making: such a task may run again although it has completed, because another task may reuse its id. If no other task does, make the id by queuelock.ID")
}

// run calls the handler, in a context that also ends when a lease is lost. A panic of the handler passes through untouched,
// because asynq finds its place by the stack above its own recover.
func (d *delivery) runHandler(ctx context.Context, held leases, next asynq.Handler) (err error) {
	panicked := true
	defer func() {
		if panicked {
			d.transition(onFailure)
			held.release(ctx)
		}
	}()
	handlerCtx, stop := join.Contexts(held.innermost().Context(), ctx, held[0].Context())
	defer stop()
	returnCtx, handlerReturned := context.WithCancel(context.WithoutCancel(ctx))
	defer handlerReturned()
	defer context.AfterFunc(ctx, func() { d.abandonAfterGrace(ctx, returnCtx) })()
	err = next.ProcessTask(NewContext(handlerCtx, Run{d.keys[0], held.innermost().FencingToken()}), d.task)
	panicked = false
	if ctx.Err() != nil {
		d.transition(onContextEnd)
	}
	if err == nil && handlerCtx.Err() != nil {
		d.report(ctx, EventNilAfterCancel)
		d.logger(ctx).Warn("queuelock: the handler returned nil after its context had ended: the task counts as done. If the handler left because of that, its work is not done: let it return ctx.Err()",
			"cause", context.Cause(handlerCtx))
	}
	return err
}

// watch lets the leases of a handler run out that does not return within the grace after its context has ended. They are
// not released, because the handler may still be at work.
func (d *delivery) abandonAfterGrace(ctx, returned context.Context) {
	if pause.For(returned, d.grace) {
		d.abandonLeases()
		d.report(ctx, EventAbandoned)
		d.logger(ctx).Error("queuelock: the handler has not returned although its context has ended: its leases are no longer renewed, and another delivery may run beside it",
			"after", d.grace, "cause", context.Cause(ctx))
	}
}

// settle ends the leases of a handler that has returned err, and returns what asynq is told.
func (d *delivery) finish(ctx context.Context, held leases, err error) error {
	if err == nil || errors.Is(err, asynq.RevokeTask) { // a revoked task is not to run again either
		d.transition(onSuccess)
		if refusal := d.complete(ctx, held); err == nil {
			err = refusal
		}
		return d.conclude(ctx, err)
	}
	cooldown, isCooldown := errors.AsType[*cooldownError](err)
	if loss := held.lostError(); loss != nil {
		err = fmt.Errorf("queuelock: %w; the handler: %w", loss, err)
	}
	if !isCooldown {
		d.transition(onFailure)
		held.release(ctx)
		return err
	}
	t := onCooldown
	if d.lastAttempt {
		t = onLastCooldown
	}
	d.transition(t)
	held[1].Release(ctx, core.Cooldown(cooldown.d))
	held[0].Release(ctx)
	return d.conclude(ctx, err)
}

// recordFor is how long the write of a completion is tried.
const recordTimeout = 30 * time.Second

// complete records the task as done, with the release of the lease of its identity, if that is to be remembered. The lease
// of the key is released at the same time: the work on it is over, whatever becomes of the record.
//
// The error is that of a record that is rejected, because a later holder decides. A record that could not be written is no
// error, since asynq would then run again what has just been done.
func (d *delivery) complete(ctx context.Context, held leases) (err error) {
	var recording sync.WaitGroup
	err = errUnrecorded // unless record returns
	recording.Go(func() { err = d.recordCompletion(ctx, held[0]) })
	held[1].Release(ctx)
	recording.Wait()
	if errors.Is(err, core.ErrLost) {
		d.transition(onRejected)
		return err
	}
	d.transition(onRecorded)
	if err != nil {
		d.report(ctx, EventUnrecorded)
		d.logger(ctx).Error("queuelock: the handler succeeded, but its completion could not be recorded: should asynq deliver the task again, it runs again", "err", err)
	}
	return nil
}

var errUnrecorded = errors.New("a callback has ended the goroutine that was to record it")

func (d *delivery) recordCompletion(ctx context.Context, identity *core.Lease) error {
	if !d.recordsCompletion {
		identity.Release(ctx)
		return nil
	}
	timeout := recordTimeout
	if ctx.Err() == nil {
		timeout = min(timeout, time.Until(d.giveUpAt))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return identity.Complete(ctx, []byte(time.Now().UTC().Format(time.RFC3339)+" "+shortType(d.task.Type())))
}

// shortened returns so much of the type of a task as its record keeps.
func shortType(taskType string) string { return taskType[:min(len(taskType), 60)] }

// tell says how the delivery has ended, and returns what asynq is told. err is why it could not be run, or what its handler
// returned.
func (d *delivery) conclude(ctx context.Context, err error) error {
	if d.state == parked {
		d.park(ctx)
	}
	switch d.state {
	case duplicate:
		d.report(ctx, EventDuplicate)
		d.logDuplicate(ctx, err)
		return nil
	case contended:
		d.report(ctx, EventContended)
		return d.giveBack(ctx, err)
	case coolingDown:
		d.report(ctx, EventCooldown)
		return d.giveBack(ctx, err)
	case unavailable:
		d.report(ctx, EventUnavailable)
		return d.giveBack(ctx, err)
	case archived:
		d.report(ctx, EventArchived)
		d.logger(ctx).Error("queuelock: a task could not be run on its last attempt: asynq archives it, from where it can be run (asynq task run); a larger MaxRetry or Timeout avoids this", "err", err)
		return fmt.Errorf("queuelock: %w: %w", ErrNotRun, err)
	case keyInvalid:
		d.report(ctx, EventNoKey)
		d.logger(ctx).Error("queuelock: a task cannot be run: it counts as failed, and is archived when its retries are used up; "+advice(err), "err", err)
		return fmt.Errorf("queuelock: not run: %w", err)
	case cancelled:
		d.logger(ctx).Info("queuelock: the context of a task ended before it could be run: if the application ended it, the task is given back. If asynq ended it, asynq has taken the task back, and counts a retry", "cause", context.Cause(ctx))
		return d.giveBack(context.WithoutCancel(ctx), fmt.Errorf("its context has ended: %w", ctx.Err()))
	case rejected:
		d.report(ctx, EventRefused)
		return fmt.Errorf("queuelock: the handler succeeded, but its completion was refused: another delivery of the task has begun, which decides, or too many lock nodes forgot whether one has: %w", err)
	}
	return err
}

// park keeps a last attempt whose context has ended in its worker, because asynq would archive the task if it got an answer.
// If the application ended the context, the server is likely to shut down soon: then asynq puts the task back, and delivers
// it again. asynq does not say so, but the Locker is closed after that.
func (d *delivery) park(ctx context.Context) {
	deadline, soon := time.NewTimer(time.Until(d.giveUpAt)), time.NewTimer(time.Second)
	defer deadline.Stop()
	defer soon.Stop()
	for d.state == parked {
		select {
		case <-soon.C: // asynq has not taken the task back
			d.logger(ctx).Warn("queuelock: the context of a task ended on its last attempt, before it could be run: the task stays in its worker, because asynq would archive it. If the server shuts down, asynq delivers it again; at its deadline, asynq archives it",
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

// tellOfDuplicate logs that a task is not run because it has completed. It warns if that may be a mistake: a producer may
// give two tasks the same id although they are different work.
func (d *delivery) logDuplicate(ctx context.Context, err error) {
	op, _ := errors.AsType[*core.OpError](err)
	completedAt, completedType, _ := strings.Cut(string(op.Record.Result), " ")
	log := d.logger(ctx).With("completed", completedAt)
	retried, _ := asynq.GetRetryCount(ctx)
	switch {
	case completedType != shortType(d.task.Type()):
		log.Warn("queuelock: a task is not run, because a task of another type has completed under the same id: give them different ids, by making the type a part of queuelock.ID", "completed_type", completedType)
	case isUUID(d.taskID(ctx)) && retried == 0:
		log.Warn("queuelock: a task is not run, because a task with the same id, queue, type and payload has completed: either asynq delivered one task twice, or a producer enqueued it again under an id that is a random UUID, as that of an order. In that case, use queuelock.ID with what tells the tasks apart")
	default:
		log.Info("queuelock: duplicate delivery of a completed task, not run")
	}
}

// advice returns what to do about a task for which nothing can be locked.
func advice(err error) string {
	switch {
	case errors.Is(err, jsonfield.ErrAbsent):
		return "if tasks of this type need no key, use Optional or a Middleware without WithKey for them"
	case core.ClassOf(err) == core.ClassDone:
		return "another caller has completed its key, which is granted again after that caller's retention"
	}
	return "correct the payload or the key function, and then run the task from asynq's archive"
}

// back returns what makes asynq deliver the task again: when its key does not rest any more, or at once. At once means as often
// as the server's limiter lets it, which the worker waits for.
func (d *delivery) giveBack(ctx context.Context, err error) error {
	delay := cooldownOf(err)
	if delay > 0 {
		delay += time.Second // which asynq may cut off: it counts in whole seconds
	} else {
		_ = d.server.returnLimiter.Wait(ctx) // fails when the task is about to end
	}
	return &notRunError{fmt.Errorf("queuelock: %w, to be delivered again in %v: %w", ErrNotRun, delay.Round(time.Millisecond), err), delay}
}
