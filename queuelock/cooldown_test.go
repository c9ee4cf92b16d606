package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// cooling is a handler whose first run for a task asks for rest, in an error that wraps it.
func (r *rig) cooling(work, rest time.Duration) asynq.HandlerFunc {
	return func(ctx context.Context, _ *asynq.Task) error {
		if n, _ := asynq.GetRetryCount(ctx); n != 0 {
			r.t.Errorf("retried %d times", n)
		}
		return r.ledger.run(taskID(ctx), func() error {
			time.Sleep(work)
			if taskID(ctx) == "cools" && r.ledger.count(&r.ledger.runs, "cools") == 1 {
				return fmt.Errorf("upstream: status 429: %w", Cooldown(rest))
			}
			return nil
		})
	}
}

// A key that is to rest is given to nobody before: to no other task, on no server, and not to core. Nothing is counted,
// and no worker is held.
func TestCooldown(t *testing.T) {
	const rest = 5 * time.Minute
	bubble(t, func(t *testing.T, r *rig) {
		var user told
		s := setup{adjust: user.adjust, opts: []Option{field("order")}}
		r.serve(s, r.cooling(0, rest))
		r.serve(s, r.cooling(0, rest))
		info := r.enqueue(order(1), asynq.TaskID("cools"))
		r.begun(info)
		start := time.Now()
		r.pass(time.Second)
		got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
		if err != nil || got.State != asynq.TaskStateRetry || got.Retried != 0 || !strings.Contains(got.LastErr, "status 429") || !strings.Contains(got.LastErr, "the handler returned Cooldown(5m0s)") {
			t.Errorf("%+v, %v", got, err)
		}
		if r.count(EventCooldown) != 1 || len(user.handled)+len(user.judged)+len(user.delayed) > 0 {
			t.Errorf("%v, %+v", r.events.Counts(), &user)
		}
		for i := range 40 {
			r.enqueue(order(1), asynq.TaskID(fmt.Sprint("same", i)))
		}
		r.enqueue(order(2), asynq.TaskID("other"))
		r.pass(10 * time.Second)
		if n := r.events.Running(core.OpAcquire); r.ledger.done["other"] != 1 || n > 4 { // who was not told that it rests
			t.Errorf("others are held up: %+v, %d wait in place", &r.ledger, n)
		}
		r.rests(start, rest)
		if n := r.count(EventContended); n > 80 {
			t.Errorf("40 tasks were given back %d times", n)
		}
		r.pass(2 * time.Minute)
		if r.ledger.done["cools"] != 1 || len(r.ledger.done) != 42 || r.ledger.overlaps > 0 {
			t.Errorf("%d have run, %+v", len(r.ledger.done), r.ledger.done["cools"])
		}
	})
}

// rests checks, almost until the rest that began at start is over, that core gives the key of order 1 to nobody, and that
// no task has run but the one that asked for the rest, once, and one of another order.
func (r *rig) rests(start time.Time, rest time.Duration) {
	r.t.Helper()
	l := r.locker()
	for time.Since(start) < rest-6*time.Second {
		_, err := l.TryAcquire(r.t.Context(), core.Key("order", "1"))
		if op, ok := errors.AsType[*core.OpError](err); !ok || op.Held != core.HeldRests {
			r.t.Fatalf("after %v: %v", time.Since(start), err)
		}
		r.pass(5 * time.Second)
		if time.Since(start) < rest && (len(r.ledger.runs) != 2 || r.ledger.runs["cools"] != 1) {
			r.t.Fatalf("after %v: %+v", time.Since(start), &r.ledger)
		}
	}
}

// A Cooldown that is no time is a failure that says so, and the key is free.
func TestCooldownOutOfRange(t *testing.T) {
	for _, d := range []time.Duration{-1, 24*time.Hour + 1} {
		t.Run(d.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var user told
				r.serve(setup{adjust: user.adjust, opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
					return r.ledger.run(taskID(ctx), func() error { return fmt.Errorf("upstream: %w", Cooldown(d)) })
				})
				info := r.enqueue(order(1), asynq.MaxRetry(1))
				r.begun(info)
				r.pass(time.Second)
				r.take(1)()
				got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
				if err != nil || got.Retried != 1 || !strings.Contains(got.LastErr, fmt.Sprintf("Cooldown(%v): must be at least 0 and at most 24h", d)) {
					t.Errorf("%+v, %v", got, err)
				}
				r.pass(time.Minute)
				if r.ledger.runs[info.ID] != 2 || r.state(info) != "archived" || len(user.handled) != 2 || r.count(EventCooldown) != 0 {
					t.Errorf("%+v, %s, %+v, %v", &r.ledger, r.state(info), &user, r.events.Counts())
				}
			})
		})
	}
}

// On the last attempt of its task, it archives it, loudly; the key rests.
func TestCooldownOnTheLastAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var user told
		r.serve(setup{adjust: user.adjust, opts: []Option{field("order")}}, r.cooling(0, time.Minute))
		info := r.enqueue(order(1), asynq.TaskID("cools"), asynq.MaxRetry(0))
		r.begun(info)
		r.pass(time.Second)
		if r.state(info) != "archived" || r.count(EventArchived) != 1 || r.count(EventCooldown) != 0 || len(user.handled) != 1 || r.logs.count("ERROR queuelock: a task could not be run on its last attempt") != 1 {
			t.Errorf("%s, %v, %+v\n%s", r.state(info), r.events.Counts(), &user, &r.logs)
		}
		_, err := r.locker().TryAcquire(t.Context(), core.Key("order", "1"))
		if op, ok := errors.AsType[*core.OpError](err); !ok || op.Held != core.HeldRests {
			t.Errorf("the key: %v", err)
		}
		if err := r.inspector.RunTask(info.Queue, info.ID); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * time.Minute) // waits for its key
		if r.ledger.done["cools"] != 1 || r.ledger.runs["cools"] != 2 {
			t.Errorf("%+v, %s", &r.ledger, r.state(info))
		}
	})
}

// A task without a key rests by itself, and not too short, though asynq counts in whole seconds.
func TestCooldownWithoutKey(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const rest = 30 * time.Second
		var began []time.Time
		adjust := func(cfg *asynq.Config) {
			cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval = 10*time.Millisecond, 10*time.Millisecond
		}
		r.serve(setup{adjust: adjust}, func(ctx context.Context, task *asynq.Task) error {
			if taskID(ctx) == "cools" {
				began = append(began, time.Now())
			}
			return r.cooling(0, rest)(ctx, task)
		})
		r.pass(time.Until(time.Now().Truncate(time.Second).Add(1900 * time.Millisecond)))
		r.enqueue(order(1), asynq.TaskID("cools"))
		r.enqueue(order(1), asynq.TaskID("other"))
		r.pass(time.Minute)
		if len(began) != 2 || !between(began[1].Sub(began[0]), rest, rest+1100*time.Millisecond) || r.ledger.done["other"] != 1 || r.count(EventCooldown) != 1 {
			t.Errorf("%v, %+v, %v", began, &r.ledger, r.events.Counts())
		}
	})
}

// After a lost lease the key may be somebody else's, and does not rest; the task does.
func TestCooldownAfterLoss(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
			return r.ledger.run(taskID(ctx), func() error {
				if taskID(ctx) != "cools" || r.ledger.count(&r.ledger.runs, "cools") > 1 {
					return nil
				}
				back := r.hang()
				<-ctx.Done()
				back()
				return Cooldown(time.Minute)
			})
		})
		info := r.enqueue(order(1), asynq.TaskID("cools"))
		r.begun(info)
		r.pass(30 * time.Second)
		got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
		if err != nil || got.State != asynq.TaskStateRetry || got.Retried != 0 || !strings.Contains(got.LastErr, "lease lost") {
			t.Errorf("%+v, %v", got, err)
		}
		r.waitsInPlace()
		r.pass(2 * time.Minute)
		if r.ledger.done[info.ID] != 1 || r.ledger.runs[info.ID] != 2 {
			t.Errorf("%+v, %s", &r.ledger, r.state(info))
		}
	})
}

// waitsInPlace checks that a task waits in place for the key of order 1 while somebody else holds it, and runs then.
func (r *rig) waitsInPlace() {
	r.t.Helper()
	back, before := r.take(1), r.count(EventContended)
	info := r.enqueue(order(1))
	r.pass(10 * time.Second)
	if n := r.events.Running(core.OpAcquire); n != 1 || r.count(EventContended) != before {
		r.t.Errorf("%d wait in place, %v", n, r.events.Counts())
	}
	back()
	r.pass(time.Second)
	if r.ledger.count(&r.ledger.done, info.ID) != 1 {
		r.t.Errorf("not run: %s", r.state(info))
	}
}

// Those who wait in place for a key leave when it is to rest for long.
func TestCooldownSendsWaitersAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := setup{opts: []Option{field("order")}}
		r.serve(s, r.cooling(20*time.Second, time.Hour))
		r.begun(r.enqueue(order(1), asynq.TaskID("cools")))
		for range 2 {
			r.enqueue(order(1))
		}
		r.pass(10 * time.Second)
		if n := r.events.Running(core.OpAcquire); n != 2 {
			t.Fatalf("%d wait in place", n)
		}
		r.pass(time.Minute)
		if n := r.events.Running(core.OpAcquire); n != 0 || r.count(EventCooldown) != 1 {
			t.Errorf("%d wait in place for a key that rests, %v", n, r.events.Counts())
		}
		before := r.count(EventContended)
		info := r.enqueue(order(1), asynq.Timeout(4*time.Hour)) // it could wait for as long
		r.pass(time.Minute)
		if n := r.events.Running(core.OpAcquire); n != 0 || r.count(EventContended) != before+1 || r.state(info) != "retry" {
			t.Errorf("%d wait in place for a key that is known to rest, %v", n, r.events.Counts())
		}
	})
}
