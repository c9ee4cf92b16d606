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

// A Cooldown out of range is an ordinary error that names the range.
func TestCooldownOutOfRange(t *testing.T) {
	for _, d := range []time.Duration{-1, 24*time.Hour + 1} {
		err := fmt.Errorf("upstream: %w", Cooldown(d))
		if cooldownOf(err) != 0 || errors.Is(err, ErrNotRun) || !strings.Contains(err.Error(), fmt.Sprintf("Cooldown(%v): must be at least 0 and at most 24h", d)) {
			t.Error(err)
		}
	}
	if cooldownOf(Cooldown(24*time.Hour)) != 24*time.Hour {
		t.Error("a day is too long")
	}
}

// Tasks that wait in place for a key leave when the key gets a long cooldown.
func TestCooldownSendsWaitersAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, r.does(func(ctx context.Context, run int) error {
			if n, _ := asynq.GetRetryCount(ctx); n != 0 {
				t.Errorf("retried %d times", n)
			}
			if time.Sleep(20 * time.Second); taskID(ctx) == "cools" && run == 1 {
				return fmt.Errorf("upstream: status 429: %w", Cooldown(time.Hour))
			}
			return nil
		}))

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
		info := r.enqueue(order(1), asynq.Timeout(4*time.Hour)) // its timeout would allow it to wait
		r.pass(time.Minute)
		if n := r.events.Running(core.OpAcquire); n != 0 || r.count(EventContended) != before+1 || r.state(info) != "retry" {
			t.Errorf("%d wait in place for a key that is known to rest, %v", n, r.events.Counts())
		}
	})
}

// After a lost lease, the key has no cooldown, because it may have another holder. The task still comes back only after
// the cooldown.
func TestCooldownAfterLoss(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, r.does(func(ctx context.Context, run int) error {
			if run > 1 {
				return nil
			}
			back := r.hang()
			<-ctx.Done()
			back()
			return Cooldown(time.Minute)
		}))
		info := r.enqueue(order(1), asynq.TaskID("cools"))
		r.begun(info)
		r.pass(30 * time.Second)
		got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
		if err != nil || got.State != asynq.TaskStateRetry || got.Retried != 0 || !strings.Contains(got.LastErr, "lease lost") {
			t.Errorf("%+v, %v", got, err)
		}
		start := time.Now()
		if r.take(1)(); time.Since(start) > time.Second {
			t.Errorf("the key was free after %v", time.Since(start))
		}
		r.pass(2 * time.Minute)
		if r.ledger.done[info.ID] != 1 || r.ledger.runs[info.ID] != 2 {
			t.Errorf("%+v, %s", &r.ledger, r.state(info))
		}
	})
}
