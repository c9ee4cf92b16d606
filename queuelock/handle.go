package queuelock

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/internal/fenced"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

// Middleware runs each task of next under its leases. It is an asynq.MiddlewareFunc:
//
//	mux.Use(m.Middleware)
//
// Only one Middleware may be on the way to a handler. Put it outside of middleware that must see only tasks that are
// run. The package document describes how a task ends that cannot be run now.
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

		finished := false
		defer func() {
			if !finished { // a method of the handler's error panicked, or a callback has ended the goroutine
				held.release(ctx)
			}
		}()
		err = d.runHandler(ctx, held, next)
		err = d.finish(ctx, held, err)
		finished = true
		return err
	})
}

// checkContext returns an error if the Middleware is not the only one, or ctx does not come from an asynq.Server.
func checkContext(ctx context.Context) error {
	if _, isNested := FromContext(ctx); isNested {
		return errors.New("queuelock: two middlewares are on the way to this handler: remove one")
	}

	_, isDelivered := asynq.GetRetryCount(ctx)
	_, hasDeadline := ctx.Deadline()
	if !isDelivered || !hasDeadline {
		return errors.New("queuelock: no asynq.Server has made this context, or its deadline is gone: " +
			"test handlers without the middleware, in a context of NewContext")
	}
	return nil
}

// runHandler calls the handler, in a context that also ends when a lease is lost. It does not recover a panic of the
// handler, because asynq logs the source line of the panic, which it finds by the stack above its own recover.
func (d *delivery) runHandler(ctx context.Context, held leases, next asynq.Handler) (err error) {
	panicked := true
	defer func() {
		if panicked {
			d.transition(onFailure)
			held.release(ctx)
		}
	}()

	handlerCtx, stop := join.Contexts(held.innermost().context(), ctx, held[0].context())
	defer stop()

	// If ctx ends, the grace period begins. It ends when the handler returns.
	returnCtx, handlerReturned := context.WithCancel(context.WithoutCancel(ctx))
	defer handlerReturned()
	defer context.AfterFunc(ctx, func() { d.abandonAfterGrace(ctx, returnCtx) })()

	run := Run{Identity: d.keys[0], FencingToken: held.innermost().token(), Slot: held[1].permit.Slot()}
	workCtx := d.withWork(handlerCtx)
	err = next.ProcessTask(NewContext(workCtx, run), d.task)
	panicked = false

	if ctx.Err() != nil {
		d.transition(onContextEnd)
	}
	if err == nil && handlerCtx.Err() != nil {
		d.report(ctx, EventNilAfterCancel)
		d.logger(ctx).Warn("queuelock: the handler returned nil after its context had ended: the task counts as done. "+
			"If the handler left because of that, its work is not done: let it return ctx.Err()",
			"cause", context.Cause(handlerCtx))
	}
	if fenced.IsDone(workCtx, err) { // by an earlier delivery, which could not record the task's completion
		return nil
	}
	return err
}

// withWork returns the context of a handler, with the task as its work. The type is a part of it, because producers may
// give tasks of two types the same ID. A foreign id names no work: another task may reuse it, and must not be taken for
// a repetition.
func (d *delivery) withWork(ctx context.Context) context.Context {
	if !d.recordsCompletion {
		return d.locker.WithWork(ctx)
	}
	return d.locker.WithWork(ctx, d.keys[0], d.task.Type())
}

// abandonAfterGrace lets the leases expire if the handler does not return within the grace period. They are not
// released, because the handler may still be at work. taskCtx is the context of the task, which has ended; returnCtx
// ends when the handler returns.
func (d *delivery) abandonAfterGrace(taskCtx, returnCtx context.Context) {
	isOver := pause.For(returnCtx, d.grace)
	if !isOver {
		return
	}

	d.abandonLeases()
	d.report(taskCtx, EventAbandoned)
	d.logger(taskCtx).Error("queuelock: the handler has not returned although its context has ended: "+
		"its leases are no longer renewed, and another delivery may run beside it",
		"after", d.grace, "cause", context.Cause(taskCtx))
}
