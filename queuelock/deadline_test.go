package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// waits returns for how long a task waits in place once it is delivered: until it has been given back, or archived.
func (r *rig) waits(info *asynq.TaskInfo) time.Duration {
	r.t.Helper()
	r.events.UntilRunning(r.t, core.OpAcquire, 1)
	start := time.Now()
	for r.state(info) == "active" {
		r.pass(10 * time.Millisecond)
		if time.Since(start) > 10*time.Minute {
			r.t.Fatal("waits for ever")
		}
	}
	return time.Since(start)
}

func between(d, least, most time.Duration) bool { return d >= least && d <= most }

// A task that waits in place is given back when half of its time is left, and no retry is counted.
func TestWaitLeavesTheHandlerHalfOfItsTime(t *testing.T) {
	for _, timeout := range []time.Duration{20 * time.Second, 3 * time.Minute, time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
				r.take(1)
				info := r.enqueue(order(1), asynq.Timeout(timeout))
				if got := r.waits(info); !between(got, timeout/2-200*time.Millisecond, timeout/2+200*time.Millisecond) {
					t.Errorf("waited for %v", got)
				}
				r.pass(10 * time.Millisecond)
				got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
				if err != nil || got.State == asynq.TaskStateArchived || got.Retried != 0 || !strings.HasPrefix(got.LastErr, "queuelock: not run, to be delivered again in 0s") {
					t.Errorf("%+v, %v", got, err)
				}
				if r.count(EventContended) != 1 {
					t.Error(r.events.Counts())
				}
			})
		})
	}
}

// Whatever the number of workers, a handler that needs less than half of the timeout has it, and no retry is counted.
func TestHandlersHaveTheirTime(t *testing.T) {
	for workers := 1; workers <= 3; workers++ {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var user told
				adjust := func(cfg *asynq.Config) { user.adjust(cfg); cfg.Concurrency = workers }
				for range 2 {
					r.serve(setup{adjust: adjust, opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
						err := r.work(ctx, 9*time.Second)
						if ctx.Err() != nil {
							t.Error("the time of a handler was not enough")
						}
						return err
					})
				}
				const tasks = 10
				for range tasks {
					r.enqueue(order(1), asynq.Timeout(20*time.Second))
				}
				r.pass(5 * time.Minute)
				if len(r.ledger.done) != tasks || len(r.ledger.runs) != tasks || len(user.handled)+len(user.judged) > 0 || r.count(EventContended) == 0 {
					t.Errorf("%d of %d ran, %+v, %v", len(r.ledger.done), tasks, &user, r.events.Counts())
				}
			})
		})
	}
}

// The last attempt waits until shortly before its deadline; then asynq archives it, which is said.
func TestLastAttemptWaitsUntilItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
		last := []asynq.Option{asynq.Timeout(40 * time.Second), asynq.MaxRetry(0)}
		r.archivedAfter(39*time.Second, last) // in time to tell asynq
		r.runsIfFreeAfter(38*time.Second, last)
	})
}

// archivedAfter checks that the last attempt of a task whose key stays held waits for d, and that the task is archived then.
func (r *rig) archivedAfter(d time.Duration, last []asynq.Option) {
	r.t.Helper()
	back := r.take(1)
	defer back()
	info := r.enqueue(order(1), last...)
	if got := r.waits(info); !between(got, d-200*time.Millisecond, d+200*time.Millisecond) {
		r.t.Errorf("waited for %v, want %v", got, d)
	}
	got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
	if err != nil || got.State != asynq.TaskStateArchived || !strings.HasPrefix(got.LastErr, "queuelock: not run: ") {
		r.t.Errorf("%+v, %v", got, err)
	}
	if r.count(EventArchived) != 1 || r.count(EventContended) != 0 || r.logs.count("ERROR queuelock: a task could not be run on its last attempt") != 1 {
		r.t.Errorf("%v\n%s", r.events.Counts(), &r.logs)
	}
}

// runsIfFreeAfter checks that the last attempt of a task whose key is free after d runs its handler.
func (r *rig) runsIfFreeAfter(d time.Duration, last []asynq.Option) {
	r.t.Helper()
	back := r.take(1)
	info := r.enqueue(order(1), last...)
	r.events.UntilRunning(r.t, core.OpAcquire, 1)
	r.pass(d)
	back()
	r.pass(time.Minute)
	if r.ledger.done[info.ID] != 1 {
		r.t.Errorf("not run: %s", r.state(info))
	}
}

// Where its deadline ends an attempt, that is what asynq is told, whether it looks at the context or at what the
// middleware returns, and so is a cancellation.
func TestDeadlineIsNoCancellation(t *testing.T) {
	for name, c := range map[string]struct {
		slow    bool
		handler func(ctx context.Context) error
	}{
		"nodes are slow":  {true, nil},
		"handler":         {false, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		"handler's cause": {false, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				later := func(cfg *asynq.Config) {
					cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
				}
				r.locks = r.locks.Replica(core.TTL(time.Minute))
				srv := r.returns(later, []Option{field("order")}, func(ctx context.Context) error { return c.handler(ctx) }, func(err error) {
					if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
						t.Errorf("the middleware returns %v", err)
					}
				})
				srv.warm(t)
				for _, n := range r.nodes {
					if c.slow { // more than half of what the task has, each time
						n.SlowReplies(700 * time.Millisecond)
					}
				}
				for i := range 20 {
					r.failsAtItsDeadline(i)
				}
			})
		})
	}
}

// failsAtItsDeadline checks that a task of order n is to be tried again because its attempt has met its deadline.
func (r *rig) failsAtItsDeadline(n int) {
	r.t.Helper()
	info := r.enqueue(order(n), asynq.Timeout(time.Second))
	r.pass(10 * time.Second)
	got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
	if err != nil || got.State != asynq.TaskStateRetry || got.Retried != 1 || !strings.Contains(got.LastErr, "deadline exceeded") || strings.Contains(got.LastErr, "canceled") {
		r.t.Errorf("task %d: %+v, %v", n, got, err)
	}
}

// returns starts a server that shows what the middleware returns.
func (r *rig) returns(adjust func(*asynq.Config), opts []Option, handler func(ctx context.Context) error, see func(error)) *process {
	r.t.Helper()
	srv := &process{locker: r.locker()}
	srv.m = r.middleware(srv.locker, opts...)
	inner := srv.m.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		return r.ledger.run(taskID(ctx), func() error { return handler(ctx) })
	}))
	cfg := asynq.Config{Concurrency: 8, Logger: silent{}}
	adjust(&cfg)
	if err := srv.m.Configure(&cfg); err != nil {
		r.t.Fatal(err)
	}
	srv.Server = asynq.NewServerFromRedisClient(r.dialQueue(), cfg)
	if err := srv.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := inner.ProcessTask(ctx, task)
		see(err)
		return err
	})); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(srv.Shutdown)
	return srv
}

// A lateContext is one that has ended before it says so, as after a pause of the process: whoever asks is told.
type lateContext struct {
	context.Context
	over *atomic.Bool
}

func (c lateContext) Err() error {
	if c.over.Load() {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// The handler's context tells whoever asks that one of those which it joins has ended, although none has said so.
func TestHandlerContextLooksAtTheClock(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var over atomic.Bool
		m := r.middleware(r.locker(), field("order"))
		inner := m.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			return r.ledger.run(taskID(ctx), func() error {
				if err := ctx.Err(); err != nil {
					t.Error(err)
				}
				over.Store(true)
				if ctx.Err() == nil {
					t.Error("it has ended, and does not say so")
				}
				return ctx.Err()
			})
		}))
		cfg := asynq.Config{Logger: silent{}}
		if err := m.Configure(&cfg); err != nil {
			t.Fatal(err)
		}
		srv := asynq.NewServerFromRedisClient(r.dialQueue(), cfg)
		if err := srv.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			return inner.ProcessTask(lateContext{ctx, &over}, task)
		})); err != nil {
			t.Fatal(err)
		}
		defer srv.Shutdown()
		r.begun(r.enqueue(order(1), asynq.MaxRetry(0)))
		r.pass(time.Second)
	})
}
