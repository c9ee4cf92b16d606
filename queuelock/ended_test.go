package queuelock

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/internal/race"
)

// An ending is a way in which the application, and not asynq, ends the contexts of a server's tasks.
type ending struct {
	name string
	// wires makes stop end the contexts of the tasks of a server.
	wires func(stop context.Context, m *Middleware, s *setup, locked asynq.Handler) asynq.HandlerFunc
}

var endings = []ending{
	{"a middleware further out", func(stop context.Context, _ *Middleware, _ *setup, locked asynq.Handler) asynq.HandlerFunc {
		return func(ctx context.Context, task *asynq.Task) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			if stop.Err() != nil {
				cancel(context.Cause(stop))
			}
			defer context.AfterFunc(stop, func() { cancel(context.Cause(stop)) })()
			return locked.ProcessTask(ctx, task)
		}
	}},
	{"the BaseContext", func(stop context.Context, _ *Middleware, s *setup, locked asynq.Handler) asynq.HandlerFunc {
		configure := s.adjust
		s.adjust = func(cfg *asynq.Config) {
			cfg.BaseContext = func() context.Context { return stop }
			configure(cfg)
		}
		return locked.ProcessTask
	}},
}

// serves starts a server. The contexts of its tasks end with stop.
func (e ending) serves(r *rig, stop context.Context, opts []Option, h asynq.HandlerFunc) *process {
	m := r.middleware(r.locker(), opts...)
	s := setup{bare: true, adjust: r.configures(m)}
	return r.serve(s.with(func(s *setup) asynq.HandlerFunc { return e.wires(stop, m, s, m.Middleware(h)) }))
}

// with returns the setup as wires has changed it, and the handler that wires returned.
func (s setup) with(wires func(s *setup) asynq.HandlerFunc) (setup, asynq.HandlerFunc) {
	h := wires(&s)
	return s, h
}

// If the application ends the context of a waiting task, the task is given back and counts no retry. On its last
// attempt, a task stays in its worker until asynq takes it back. Then another server runs it.
func TestApplicationEndsContexts(t *testing.T) {
	for _, e := range endings {
		bubbleOf(t, e.name, func(t *testing.T, r *rig) {
			stop, end := context.WithCancel(context.Background())
			p := e.serves(r, stop, []Option{field("order")}, r.works(time.Second))
			free := r.take(1)
			tasks := []*asynq.TaskInfo{r.enqueue(order(1), asynq.MaxRetry(3)), r.enqueue(order(1), asynq.MaxRetry(1)), r.enqueue(order(1), asynq.MaxRetry(0))}
			r.pass(10 * time.Second)
			end()
			r.pass(10 * time.Second)

			check := func(when string) {
				for _, info := range tasks {
					got := must(r.inspector.GetTaskInfo(info.Queue, info.ID))
					if got.Retried > 0 || got.State == asynq.TaskStateArchived {
						t.Errorf("%s, MaxRetry %d: %v, %d retries used: %s", when, got.MaxRetry, got.State, got.Retried, got.LastErr)
					}
				}
			}

			check("while the server runs")
			p.Shutdown()
			check("after the server has shut down")

			free()
			r.serve(setup{opts: []Option{field("order")}}, r.works(time.Second))
			r.pass(time.Minute)
			for _, info := range tasks {
				if r.ledger.done[info.ID] != 1 {
					t.Errorf("MaxRetry %d: %s, done %d times", info.MaxRetry, r.state(info), r.ledger.done[info.ID])
				}
			}
			if r.count(EventArchived) > 0 || r.logs.Count("level=WARN", "on its last attempt") != 1 {
				t.Errorf("%v\n%s", r.events.Counts(), r.logs.Lines())
			}
		})
	}
}

// If the context has ended before a task reaches the middleware, the task is not run, counts no retry and is not
// archived. This also holds if the ended context makes the key function fail.
func TestContextsThatHaveEnded(t *testing.T) {
	race.SkipSweep(t)
	asks := WithKey(func(ctx context.Context, _ *asynq.Task) (string, error) { return "k", ctx.Err() })
	for name, opts := range map[string][]Option{"no key": nil, "a key function fails": {asks}} {
		for _, e := range endings {
			bubbleOf(t, fmt.Sprint(name, ", ", e.name), func(t *testing.T, r *rig) {
				stop, end := context.WithCancel(context.Background())
				end()
				e.serves(r, stop, opts, r.works(0))
				tasks := []*asynq.TaskInfo{r.enqueue(order(1), asynq.MaxRetry(3)), r.enqueue(order(1), asynq.MaxRetry(0))}
				r.pass(10 * time.Minute)
				for _, info := range tasks {
					got := must(r.inspector.GetTaskInfo(info.Queue, info.ID))
					if got.Retried > 0 || got.State == asynq.TaskStateArchived || r.ledger.runs[info.ID] > 0 {
						t.Errorf("MaxRetry %d: %v, %d retries used: %s", got.MaxRetry, got.State, got.Retried, got.LastErr)
					}
				}
				if r.count(EventNoKey) > 0 {
					t.Errorf("%v", r.events.Counts())
				}
			})
		}
	}
}

// A deadline that a middleware further out sets counts as the task's own. A task that waits for its key until then
// counts no retry. On its last attempt it is archived before that deadline.
func TestDeadlineFurtherOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := r.middleware(r.locker(), field("order"))
		locked := m.Middleware(r.works(0))
		r.serve(setup{bare: true, adjust: r.configures(m)}, func(ctx context.Context, task *asynq.Task) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return locked.ProcessTask(ctx, task)
		})
		defer r.take(1)()
		some, last := r.enqueue(order(1), asynq.MaxRetry(3)), r.enqueue(order(1), asynq.MaxRetry(0))
		r.pass(5 * time.Minute)
		if got := must(r.inspector.GetTaskInfo(some.Queue, some.ID)); got.Retried > 0 {
			t.Errorf("%d retries used: %s", got.Retried, got.LastErr)
		}
		if r.state(last) != "archived" || r.count(EventArchived) != 1 {
			t.Errorf("%s, %v", r.state(last), r.events.Counts())
		}
	})
}

// The end of the BaseContext ends the context of a handler with the same cause. asynq waits for the handler, so its
// result counts.
func TestBaseContextOfAHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		stop, end := context.WithCancelCause(context.Background())
		why := fmt.Errorf("stopped")
		r.serve(setup{adjust: func(cfg *asynq.Config) { cfg.BaseContext = func() context.Context { return stop } }}, r.does(func(ctx context.Context, _ int) error {
			<-ctx.Done()
			if context.Cause(ctx) != why {
				t.Errorf("%v", context.Cause(ctx))
			}
			time.Sleep(time.Second)
			return nil
		}))
		info := r.enqueue(order(1))
		r.pass(10 * time.Second)
		end(why)
		r.pass(10 * time.Second)
		if r.ledger.done[info.ID] != 1 || r.state(info) != "gone" || r.count(EventNilAfterCancel) != 1 {
			t.Errorf("%s, %+v, %v", r.state(info), &r.ledger, r.events.Counts())
		}
	})
}
