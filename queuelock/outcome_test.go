package queuelock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// hang makes the locks unreachable until back is called.
func (r *rig) hang() (back func()) {
	for _, n := range r.nodes {
		n.Down()
	}
	return func() {
		for _, n := range r.nodes {
			n.Up()
		}
	}
}

// A panic reaches asynq unchanged, with the handler's line. When the task runs again, its keys are free.
func TestPanic(t *testing.T) {
	var none map[int]int
	for _, c := range []struct {
		name, in string
		do       func()
	}{
		{"panic", "outcome_test.go:", func() { panic("handler") }},
		// asynq names the frame two up, which is still in package runtime.
		{"runtime", "runtime/", func() { none[1]++ }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var bare, locked string
			t.Run("bare", func(t *testing.T) { bare = panics(t, true, c.do) })
			t.Run("locked", func(t *testing.T) { locked = panics(t, false, c.do) })
			if bare != locked || !strings.Contains(locked, c.in) {
				t.Errorf("bare:   %s\nlocked: %s", bare, locked)
			}
		})
	}
}

// panics returns asynq's error of a handler that calls do in its first run.
func panics(t *testing.T, bare bool, do func()) (said string) {
	bubbleNow(t, func(t *testing.T, r *rig) {
		var user told
		r.serve(setup{bare: bare, adjust: user.adjust, opts: []Option{field("order")}}, r.does(func(_ context.Context, run int) error {
			if run == 1 {
				do()
			}
			return nil
		}))
		info := r.enqueue(order(1))
		r.pass(time.Minute)
		if len(user.handled) != 1 || r.ledger.done[info.ID] != 1 || r.count(EventContended) > 0 {
			t.Fatalf("%+v, %+v, %v", &user, &r.ledger, r.events.Counts())
		}
		said = user.handled[0]
	})
	return said
}

// The defaults that a Locker has for its calls (Detached, MaxHold and Retention) do not apply to tasks.
func TestDefaultsOfTheLocker(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		l := r.locks.Replica(core.Detached(true), core.MaxHold(2*time.Second), core.Retention(time.Second)).Locker
		soon := func(cfg *asynq.Config) {
			cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
		}
		s := setup{locker: l, adjust: soon, opts: []Option{WithGrace(20 * time.Second)}}
		r.serve(s, r.does(func(ctx context.Context, run int) error {
			if time.Sleep(5 * time.Second); ctx.Err() != nil {
				t.Errorf("the lease has ended: %v", context.Cause(ctx))
			}
			if run == 1 {
				time.Sleep(time.Minute)
				return errors.New("gave up")
			}
			return nil
		}))
		info := r.enqueue(order(1), asynq.Timeout(10*time.Second), asynq.MaxRetry(3))
		r.pass(50 * time.Second) // the grace and the TTL are over
		if r.ledger.done[info.ID] != 1 || r.ledger.runs[info.ID] != 2 {
			t.Errorf("%+v", &r.ledger)
		}
		r.pass(time.Minute)
		identity, _ := taskIdentity(info.ID, info.Queue, order(1))
		if _, err := r.locker().TryAcquire(t.Context(), identity); !errors.Is(err, core.ErrDone) {
			t.Errorf("the record is gone: %v", err)
		}
	})
}

// The handler's context has the deadline and the values of asynq's, and ends like it.
func TestHandlerContext(t *testing.T) {
	type baseKey struct{}
	bubble(t, func(t *testing.T, r *rig) {
		type ended struct{ err, cause error }
		told := make(chan ended, 1)
		r.serve(setup{opts: []Option{field("order")}, adjust: func(c *asynq.Config) {
			c.BaseContext = func() context.Context { return context.WithValue(context.Background(), baseKey{}, "base") }
		}}, func(ctx context.Context, task *asynq.Task) error {
			deadline, ok := ctx.Deadline()
			if left := time.Until(deadline); !ok || left < 15*time.Second || left > 20*time.Second {
				t.Errorf("deadline in %v, %v", left, ok)
			}
			if ctx.Value(baseKey{}) != "base" || taskID(ctx) != theID {
				t.Error("values of asynq's context are missing")
			}
			run, ok := FromContext(ctx)
			lease, _ := core.FromContext(ctx)
			if !ok || run.Identity != "5:queue/4:task/11:lockkit:1:t" || run.FencingToken != lease.FencingToken() || lease.Key() != "5:order/1:1" {
				t.Errorf("%+v, lease on %s", run, lease.Key())
			}
			<-ctx.Done()
			told <- ended{ctx.Err(), context.Cause(ctx)}
			return nil
		})

		r.enqueue(order(1), ID("t"), asynq.Timeout(20*time.Second))
		if got := <-told; got.err != context.DeadlineExceeded || got.cause != context.DeadlineExceeded {
			t.Errorf("%+v", got)
		}
		r.pass(time.Minute)
	})
}
