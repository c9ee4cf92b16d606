package queuelock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// take has somebody else hold the key of an order until back is called.
func (r *rig) take(n int) (back func()) {
	r.t.Helper()
	lease, err := r.locker().Acquire(context.Background(), core.Key("order", fmt.Sprint(n)))
	if err != nil {
		r.t.Fatal(err)
	}
	back = sync.OnceFunc(func() { lease.Release(context.Background()) })
	r.t.Cleanup(back)
	return back
}

// However a delivery ends, its worker counts as free again, and no more than once: where there are workers to spare, a
// task waits in place, and where there are not, it does not.
func TestWorkersAreGivenBack(t *testing.T) {
	failure := errors.New("failed")
	for name, do := range map[string]func(ctx context.Context) error{
		"nil":       func(context.Context) error { return nil },
		"error":     func(context.Context) error { return failure },
		"panic":     func(context.Context) error { panic("handler") },
		"Goexit":    func(context.Context) error { runtime.Goexit(); return nil },
		"timeout":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"overstays": func(ctx context.Context) error { <-ctx.Done(); time.Sleep(5 * time.Minute); return nil },
		"unfit":     nil, // no key can be made of them
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{opts: []Option{field("order"), WithWait(time.Minute)}}, func(ctx context.Context, task *asynq.Task) error {
					return r.ledger.run(taskID(ctx), func() error {
						if strings.HasPrefix(task.Type(), "task:first") {
							return do(ctx)
						}
						return nil
					})
				})
				payload := map[bool]string{true: `{"order":%d}`, false: `{"none":%d}`}[do != nil]
				for i := range 20 {
					r.enqueue(asynq.NewTask("task:first", fmt.Appendf(nil, payload, i)), asynq.MaxRetry(0), asynq.Timeout(2*time.Second))
				}
				r.pass(20 * time.Second)
				if len(r.ledger.runs) != 20 && do != nil {
					t.Fatalf("only %d have run", len(r.ledger.runs))
				}
				r.sparesWorkers()
			})
		})
	}
}

// The same where the middleware does not hear that asynq gives up, and where waits were ended for want of workers.
func TestWorkersAreGivenBackOnce(t *testing.T) {
	for name, c := range map[string]struct {
		first func(r *rig)
		outer func(context.Context) context.Context
	}{
		"a context without end": {func(r *rig) {
			for i := range 20 {
				r.enqueue(order(i))
			}
			r.pass(20 * time.Second)
		}, context.WithoutCancel},
		"after waits that gave way": {func(r *rig) {
			back := r.take(1)
			for range 20 {
				r.enqueue(order(1))
			}
			r.pass(20 * time.Second)
			if r.count(EventContended) < 12 {
				r.t.Errorf("none gave way: %v", r.events.Counts())
			}
			back()
			r.pass(11 * time.Minute)
			if len(r.ledger.done) != 20 {
				r.t.Errorf("%d of 20 have run", len(r.ledger.done))
			}
		}, func(ctx context.Context) context.Context { return ctx }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				runner := r.runner(r.locker(), field("order"), WithWait(time.Minute))
				inner := runner.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) }))
				cfg := asynq.Config{Concurrency: 8, Logger: silent{}}
				if err := runner.Configure(&cfg); err != nil {
					t.Fatal(err)
				}
				srv := asynq.NewServerFromRedisClient(r.dialQueue(), cfg)
				if err := srv.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					return inner.ProcessTask(c.outer(ctx), task)
				})); err != nil {
					t.Fatal(err)
				}
				defer srv.Shutdown()
				c.first(r)
				r.sparesWorkers()
			})
		})
	}
}

// sparesWorkers checks that a server of 8 workers whose handler returns at once, all of them idle, lets two tasks wait for
// a key, and that many waiters leave a worker to a task of another one.
func (r *rig) sparesWorkers() {
	r.t.Helper()
	r.take(100)
	before := r.count(EventContended)
	for range 2 {
		r.enqueue(order(100))
	}
	r.pass(20 * time.Second)
	if n := r.events.Running(core.OpAcquire); n != 2 || r.count(EventContended) > before {
		r.t.Errorf("%d tasks wait in place, and %d were given back", n, r.count(EventContended)-before)
	}
	for range 10 {
		r.enqueue(order(100))
	}
	other := r.enqueue(order(200))
	r.pass(10 * time.Second)
	if s := r.state(other); s != "gone" {
		r.t.Errorf("a task that need not wait is %s", s)
	}
}

// Where workers are short, the oldest waiter of a key stays, for a quarter of the workers.
func TestWhoStaysWhereWorkersAreShort(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.serve(setup{opts: []Option{field("order"), WithWait(10 * time.Minute)}}, r.longUntil(release))
		backs := []func(){r.take(0), r.take(1), r.take(2), r.take(3)}
		var waiters []*asynq.TaskInfo
		for _, n := range []int{0, 0, 1, 2, 3, 1} {
			waiters = append(waiters, r.enqueue(order(n)))
			r.pass(5 * time.Second)
		}
		if n := r.events.Running(core.OpAcquire); n != 6 {
			t.Errorf("%d of 6 wait while there are workers to spare", n)
		}
		for i := range 10 {
			r.enqueue(asynq.NewTask("task:long", fmt.Appendf(nil, `{"order":%d}`, 10+i)))
		}
		r.pass(10 * time.Second)
		if n := r.events.Running(core.OpAcquire); n != 2 || len(r.ledger.runs) != 6 {
			t.Errorf("%d wait in place and %d run", n, len(r.ledger.runs))
		}
		for _, back := range backs {
			back()
		}
		r.pass(time.Second)
		for i, info := range waiters {
			if stayed := i == 0 || i == 2; (r.state(info) == "gone") != stayed {
				t.Errorf("waiter %d is %s", i, r.state(info))
			}
		}
		close(release)
		r.pass(2 * time.Minute)
		if len(r.ledger.done) != 16 {
			t.Errorf("%d of 16 have run", len(r.ledger.done))
		}
	})
}

// longUntil is a handler that returns at once, but for tasks of type task:long, whose runs last until release is closed.
func (r *rig) longUntil(release <-chan struct{}) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		return r.ledger.run(taskID(ctx), func() error {
			if task.Type() == "task:long" {
				<-release
			}
			return nil
		})
	}
}
