package queuelock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// Skip drops a task whose key is held, on its last attempt, too, and no other.
func TestSkip(t *testing.T) {
	for name, retries := range map[string]int{"retries": 5, "last attempt": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var user told
				r.serve(setup{adjust: user.adjust, opts: []Option{field("order"), WithConflict(Skip)}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
				back := r.take(1)
				skipped, other := r.enqueue(order(1), asynq.MaxRetry(retries)), r.enqueue(order(2), asynq.MaxRetry(retries))
				r.pass(10 * time.Second)
				if r.state(skipped) != "gone" || r.state(other) != "gone" || r.ledger.runs[skipped.ID] != 0 || r.ledger.done[other.ID] != 1 {
					t.Errorf("%s and %s, %+v", r.state(skipped), r.state(other), &r.ledger)
				}
				if r.count(EventSkipped) != 1 || r.count(EventContended) != 0 || r.logs.count("INFO queuelock: a task was skipped") != 1 || len(user.handled) > 0 {
					t.Errorf("%v, %+v\n%s", r.events.Counts(), &user, &r.logs)
				}
				back()
				r.pass(time.Minute)
				again := r.enqueue(order(1), asynq.MaxRetry(retries))
				r.pass(10 * time.Second)
				if r.ledger.done[again.ID] != 1 || r.ledger.runs[skipped.ID] != 0 {
					t.Errorf("%+v", &r.ledger)
				}
			})
		})
	}
}

// A task that is skipped is not recorded as completed: nothing has been done.
func TestSkippedIsNotRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order"), WithConflict(Skip)}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
		back := r.take(1)
		r.enqueue(order(1), asynq.TaskID("t"))
		r.pass(10 * time.Second)
		back()
		r.enqueue(order(1), asynq.TaskID("t"))
		r.pass(10 * time.Second)
		if r.ledger.done["t"] != 1 || r.count(EventSkipped) != 1 || r.count(EventDuplicate) != 0 {
			t.Errorf("%+v, %v", &r.ledger, r.events.Counts())
		}
	})
}

// A second delivery of a task is no conflict: the first may yet fail, and then it runs.
func TestSkipKeepsTheSecondDelivery(t *testing.T) {
	for name, retries := range map[string]int{"retries": 5, "last attempt": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{opts: []Option{field("order"), WithConflict(Skip)}, adjust: func(cfg *asynq.Config) {
					cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
				}}, func(ctx context.Context, _ *asynq.Task) error {
					return r.ledger.run(taskID(ctx), func() error {
						if n, _ := asynq.GetRetryCount(ctx); n == 0 { // does not look at its context, and fails late
							time.Sleep(40 * time.Second)
							return errors.New("failed")
						}
						return nil
					})
				})
				info := r.enqueue(order(1), asynq.MaxRetry(retries), asynq.Timeout(25*time.Second))
				r.pass(2 * time.Minute)
				if r.ledger.runs[info.ID] != 2 || r.ledger.done[info.ID] != 1 || r.ledger.overlaps > 0 || r.count(EventSkipped) != 0 {
					t.Errorf("%s, %+v, %v", r.state(info), &r.ledger, r.events.Counts())
				}
			})
		})
	}
}

// ComeBack gives the task back at once, and its worker with it; on the last attempt it waits, because asynq would archive
// the task.
func TestComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order"), WithConflict(ComeBack)}}, func(ctx context.Context, _ *asynq.Task) error {
			if n, _ := asynq.GetRetryCount(ctx); n != 0 {
				t.Errorf("retried %d times", n)
			}
			return r.work(ctx, 0)
		})
		back := r.take(1)
		info := r.enqueue(order(1))
		r.events.Until(t, "acquire held", 1)
		start := time.Now()
		r.events.Until(t, "queuelock "+string(EventContended), 1)
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("given back after %v", took)
		}
		last := r.enqueue(order(1), asynq.MaxRetry(0))
		waiting := 0
		for range 600 {
			r.pass(100 * time.Millisecond)
			if n := r.events.Running(core.OpAcquire); n > 1 {
				t.Fatalf("%d wait in place", n)
			} else {
				waiting += n
			}
		}
		if waiting < 500 || r.count(EventContended) < 2 {
			t.Errorf("the last attempt waits for %d of 600, events %v", waiting, r.events.Counts())
		}
		back()
		r.pass(5 * time.Minute)
		if r.ledger.done[info.ID] != 1 || r.ledger.done[last.ID] != 1 {
			t.Errorf("%+v, %s, %s", &r.ledger, r.state(info), r.state(last))
		}
	})
}
