package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

const source = "queuelock" // of events

// A Runner runs the tasks of asynq servers under leases. It is safe for concurrent use, and one of them may
// serve several servers.
type Runner struct {
	conf  config
	locks *core.Locker
	names names

	unwired, retries, reused sync.Once // what is said once
}

// New returns a Runner that takes its leases from locks, which the caller keeps owning: close it after the
// servers have shut down. Its TTL is how long the keys of a process that dies stay taken.
//
// The error names every fault of the options, and a key prefix of locks that asynq claims for itself.
func New(locks *core.Locker, opts ...Option) (*Runner, error) {
	conf := defaults().with(opts)
	faults := []error{conf.check()}
	r := &Runner{conf: conf, locks: locks}
	switch {
	case locks == nil:
		faults = append(faults, errors.New("locker is nil"))
	default:
		if p := locks.KeyPrefix(); strings.HasPrefix(p, asynqPrefix) {
			faults = append(faults, fmt.Errorf("the locker's key prefix %q begins with %q, which belongs to asynq: choose another (core.WithKeyPrefix)", p, asynqPrefix))
		}
		if _, err := locks.With(conf.of("")...); err != nil {
			faults = append(faults, err)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("queuelock: %w", err)
	}
	return r, nil
}

const asynqPrefix = "asynq:"

// Middleware runs each task of next under its leases; it is an asynq.MiddlewareFunc:
//
//	mux.Use(runner.Middleware)
//
// Use it once per handler, before middleware that must only see tasks that are run. The package
// documentation says what becomes of a task that cannot be run now.
func (r *Runner) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		d, err := r.delivery(ctx, t)
		if err != nil {
			return err
		}
		h, err := d.acquire(ctx)
		if err != nil {
			return d.notRun(ctx, err)
		}
		return d.run(ctx, h, next)
	})
}

// A delivery is one arrival of a task at a handler.
type delivery struct {
	r        *Runner
	task     *asynq.Task
	identity string // key of the task
	entity   string // key of what it works on, "" for none
	first    bool   // no failure has been counted yet
	last     bool   // asynq archives the task whatever the error is
	name     string // of its type, for observers
	seats    seats
}

func (r *Runner) delivery(ctx context.Context, t *asynq.Task) (*delivery, error) {
	if _, nested := FromContext(ctx); nested {
		return nil, errors.New("queuelock: the middleware is in use twice on the way to this handler: remove one")
	}
	retried, ok := asynq.GetRetryCount(ctx)
	most, _ := asynq.GetMaxRetry(ctx)
	if !ok {
		return nil, errors.New("queuelock: the context is not that of a task which an asynq.Server delivered: to test a handler without one, call it without the middleware")
	}
	d := &delivery{r: r, task: t, first: retried == 0, last: retried >= most, name: r.names.of(t.Type()), seats: r.wiredSeats(ctx)}
	if most > r.conf.maxRetry {
		r.retries.Do(func() {
			r.conf.logger.Warn("queuelock: a task may be retried more often than the retention of completion records was checked for: raise WithMaxRetry, or enqueue it with a smaller asynq.MaxRetry",
				"type", t.Type(), "max_retry", most, "checked_for", r.conf.maxRetry)
		})
	}
	var err error
	if d.identity, err = r.identity(ctx, t); err != nil {
		return nil, fmt.Errorf("queuelock: not run: identity of the task: %w", err)
	}
	if d.entity, err = r.entity(ctx, t); err != nil {
		return nil, fmt.Errorf("queuelock: not run: key of the task: %w", err)
	}
	return d, nil
}

// of are the options of the leases of tasks with this name.
func (c *config) of(name string) []core.Option {
	return []core.Option{core.WithDetachedLease(false), core.WithName(name), core.WithRetention(c.retention), core.WithResultLimit(resultLimit),
		core.WithMaxWait(max(c.wait, 0))}
}

// resultLimit leaves room for what complete writes, and for a handler that completes its lease by itself.
const resultLimit = 4 << 10

func (d *delivery) event(ctx context.Context, kind string) {
	d.r.locks.Event(ctx, core.Event{Source: source, Name: d.name, Kind: kind})
}

// attrs names the task in a log line.
func (d *delivery) attrs(ctx context.Context, more ...any) []any {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	attrs := []any{"type", d.task.Type(), "queue", queue, "id", id, "key", d.identity}
	if d.entity != "" {
		attrs = append(attrs, "entity", d.entity)
	}
	return append(attrs, more...)
}
