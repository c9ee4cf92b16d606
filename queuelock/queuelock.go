package queuelock

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/pause"
)

// A Runner runs the tasks of asynq servers under leases. It is safe for concurrent use, and one of them may
// serve several servers.
type Runner struct {
	conf   config
	locker *core.Locker
	types  types

	said      sync.Map // what is wrong with the wiring, said once
	unstamped sync.Map // names of the types of which it was said
}

// New returns a Runner that takes its leases from locker, which the caller keeps owning: close it after the
// servers have shut down. Its TTL is how long the keys of a process that dies stay taken.
//
// The error names every fault of the options, and a key prefix of locker that asynq claims for itself.
func New(locker *core.Locker, opts ...Option) (*Runner, error) {
	conf := newConfig(opts)
	conf.checkLocker(locker)
	if err := conf.faults.Err("queuelock"); err != nil {
		return nil, err
	}
	return &Runner{conf: conf, locker: locker, types: types{known: map[string]*pace{}}}, nil
}

const asynqPrefix = "asynq:"

func (c *config) checkLocker(locker *core.Locker) {
	_, err := locker.With(c.leaseOptions("", time.Second)...) // also where there is no Locker
	c.faults.Check(err != nil, "%w", err)
	p := locker.KeyPrefix()
	c.faults.Check(strings.HasPrefix(p, asynqPrefix), "the locker's key prefix %q begins with %q, which belongs to asynq: choose another (core.WithKeyPrefix)", p, asynqPrefix)
}

// Middleware runs each task of next under its leases; it is an asynq.MiddlewareFunc:
//
//	mux.Use(runner.Middleware)
//
// Use it once per handler, before middleware that must only see tasks that are run. The package
// documentation says what becomes of a task that cannot be run now.
func (r *Runner) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error { return r.process(ctx, t, next) })
}

// process is what becomes of a delivery. A panic of the handler passes through untouched, because asynq tells where it
// came from by the stack above its own recover.
func (r *Runner) process(ctx context.Context, t *asynq.Task, next asynq.Handler) error {
	if err := misused(ctx); err != nil {
		r.sayOnce(err.Error())
		return err
	}
	w := r.wiring(ctx)
	worker, leave := w.join(ctx)
	defer leave()
	d, err := r.delivery(ctx, t, w, worker)
	if err != nil {
		return d.unfit(ctx, err)
	}
	held, err := d.acquire(ctx)
	if err != nil {
		return d.refuse(ctx, err)
	}
	d.worker.works()
	began, returned := time.Now(), false
	defer func() {
		if !returned {
			held.release(ctx)
		}
	}()
	err = d.run(ctx, held, next)
	returned = true
	err = d.settle(ctx, held, err)
	d.pace.note(time.Since(began))
	return err
}

// run calls the handler, in a context that also ends when a lease is lost.
func (d *delivery) run(ctx context.Context, held leases, next asynq.Handler) error {
	run, stop := join.Contexts(held.innermost().Context(), ctx, held[0].Context())
	defer stop()
	defer d.watch(ctx)()
	err := next.ProcessTask(NewContext(run, Execution{d.keys[0], held.innermost().FencingToken()}), d.task)
	return d.judge(ctx, run, err)
}

// watch has the leases of a handler run out that has not returned a grace after its context ended, and says so. They are
// not released: the handler may still be at work. The function that it returns notes that the handler has returned.
func (d *delivery) watch(ctx context.Context) (over func()) {
	running, returned := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(watched)
		if pause.For(running, d.grace) {
			for _, end := range d.abandon {
				end()
			}
			d.event(ctx, EventAbandoned)
			d.log(ctx).Error("queuelock: the handler has not returned although its context has ended: its leases are not renewed any more, and another delivery may run beside it",
				"after", d.grace, "cause", context.Cause(ctx))
		}
	})
	return func() {
		returned()
		if !stop() {
			<-watched
		}
	}
}
