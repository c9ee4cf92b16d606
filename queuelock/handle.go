package queuelock

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

// Middleware runs each task of next under its leases. It is an asynq.MiddlewareFunc:
//
//	mux.Use(m.Middleware)
//
// Only one Middleware may be on the way to a handler. Put it around those that must see only tasks that are run. The package
// document says what becomes of a task that cannot be run now.
func (m *Middleware) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		d, err := m.delivery(ctx, t)
		if err != nil {
			return err
		}
		held, err := d.acquire(ctx)
		if err != nil {
			return d.tell(ctx, err)
		}
		return d.settle(ctx, held, d.run(ctx, held, next))
	})
}

// delivery returns that of a task. The error is what asynq is told if the task cannot be run.
func (m *Middleware) delivery(ctx context.Context, t *asynq.Task) (*delivery, error) {
	if err := misused(ctx); err != nil {
		m.complain(err.Error())
		return nil, err
	}
	retried, _ := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	d := &delivery{Middleware: m, task: t, began: time.Now(), atLast: retried >= most, server: m.server(ctx)}
	at, _ := ctx.Deadline()
	left := time.Until(at)
	d.half, d.last = at.Add(-left/2), at.Add(-min(left/10, time.Second))
	if err := d.findKeys(ctx); err != nil {
		d.happens(wrong)
		return nil, d.tell(ctx, err)
	}
	d.warnOfForeignID(ctx)
	return d, nil
}

// misused returns what is wrong with the way to the middleware.
func misused(ctx context.Context) error {
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
const maxForeign = 256

// warnOfForeignID says, at the first task of a type, that its completions are not remembered.
func (d *delivery) warnOfForeignID(ctx context.Context) {
	if d.remembered || d.types.Load() >= maxForeign {
		return
	}
	if _, said := d.foreign.LoadOrStore(d.task.Type(), true); said {
		return
	}
	d.types.Add(1)
	d.count(ctx, EventForeignID)
	d.log(ctx).Warn("queuelock: tasks of this type have ids of their producer's making: such a task may run again although it has completed, because another task may reuse its id. If no other task does, make the id by queuelock.ID")
}

// run calls the handler, in a context that also ends when a lease is lost. A panic of the handler passes through untouched,
// because asynq finds its place by the stack above its own recover.
func (d *delivery) run(ctx context.Context, held leases, next asynq.Handler) (err error) {
	panicked := true
	defer func() {
		if panicked {
			d.happens(failed)
			held.release(ctx)
		}
	}()
	work, stop := join.Contexts(held.innermost().Context(), ctx, held[0].Context())
	defer stop()
	returned, handlerReturned := context.WithCancel(context.WithoutCancel(ctx))
	defer handlerReturned()
	defer context.AfterFunc(ctx, func() { d.watch(ctx, returned) })()
	err = next.ProcessTask(NewContext(work, Run{d.keys[0], held.innermost().FencingToken()}), d.task)
	panicked = false
	if ctx.Err() != nil {
		d.happens(ended)
	}
	if err == nil && work.Err() != nil {
		d.count(ctx, EventNilAfterCancel)
		d.log(ctx).Warn("queuelock: the handler returned nil after its context had ended: the task counts as done. If the handler left because of that, its work is not done: let it return ctx.Err()",
			"cause", context.Cause(work))
	}
	return err
}

// watch lets the leases of a handler run out that does not return within the grace after its context has ended. They are
// not released, because the handler may still be at work.
func (d *delivery) watch(ctx, returned context.Context) {
	if pause.For(returned, d.grace) {
		d.abandon()
		d.count(ctx, EventAbandoned)
		d.log(ctx).Error("queuelock: the handler has not returned although its context has ended: its leases are no longer renewed, and another delivery may run beside it",
			"after", d.grace, "cause", context.Cause(ctx))
	}
}
