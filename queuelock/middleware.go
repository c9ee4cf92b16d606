package queuelock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

// A Middleware runs the tasks of asynq servers under leases. It is safe for concurrent use and may serve several servers.
type Middleware struct {
	config
	*shared
	locker *core.Locker
}

// shared is what a Middleware shares with those that With made of it.
type shared struct {
	said    sync.Map     // faults of the wiring, each of which is logged once
	foreign sync.Map     // types of tasks with foreign ids, likewise
	types   atomic.Int32 // how many of them
}

// New returns a Middleware that takes its leases from locker. The caller closes locker after the servers have shut down.
// After the death of a process, its keys stay taken for as long as the TTL of locker. The error names everything that is
// wrong with the arguments.
func New(locker *core.Locker, opts ...Option) (*Middleware, error) {
	m := &Middleware{config{key: noKey, waiters: aQuarter, grace: 2 * time.Minute, retention: 8 * time.Hour}, &shared{}, locker}
	return m.derive(opts)
}

// With returns a Middleware with the options of m and others, for some of the handlers of a server:
//
//	mux.Handle("report:", reports.Middleware(handler))
//
// A server that m was configured for needs no other Configure. WithWaiters must be among the options of New.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	own, err := m.derive(opts)
	if err == nil && own.waiters != m.waiters {
		return nil, errors.New("queuelock: WithWaiters belongs to the whole server, and not to some of its handlers: give it to New")
	}
	return own, err
}

func (m *Middleware) derive(opts []Option) (*Middleware, error) {
	var f faults.List
	own := &Middleware{m.config, m.shared, m.locker}
	faults.Set(&f, &own.config, opts)
	own.check(&f)
	locker, err := m.locker.With(core.Detached(false), core.MaxHold(0), core.Retention(own.retention)) // checks these, too
	f.Check(err != nil, "%w", err)
	f.Check(strings.HasPrefix(m.locker.KeyPrefix(), "asynq:"), "the locker's key prefix, asynq:…, belongs to asynq: choose another (core.WithKeyPrefix)")
	own.locker = locker
	return own, f.Err("queuelock")
}

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

// complain logs what is wrong with the wiring, unless it has before.
func (m *Middleware) complain(fault string) {
	if _, said := m.said.LoadOrStore(fault, true); !said {
		m.locker.Logger().Error(fault)
	}
}
