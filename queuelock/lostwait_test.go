package queuelock

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// A task that lost its own lease while it waited for what it works on is not run: another delivery of it may run.
func TestOwnLeaseLostWhileWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		retries int
		ended   func(*rig, *asynq.TaskInfo) bool // as it should
	}{
		"waits in its turn": {5, func(r *rig, _ *asynq.TaskInfo) bool {
			return r.ledger.done[theID] == 1 && r.count(EventUnavailable) > 0
		}},
		"last attempt": {0, func(r *rig, _ *asynq.TaskInfo) bool {
			return r.ledger.done[theID] == 1 && r.count(EventUnavailable) == 0
		}}, // begins anew
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{opts: []Option{field("order")}}, r.neverRetried)
				back := r.take(1)
				info := r.enqueue(order(1), ID("t"), asynq.MaxRetry(c.retries))
				r.events.UntilRunning(t, core.OpAcquire, 1)
				r.pass(time.Second)
				giveBack := r.steal(core.Key("queue", "task", theID))
				r.pass(5 * time.Second) // a renewal
				if n := r.events.Count("hold lost"); n != 1 {
					t.Fatalf("%d leases lost", n)
				}
				back()
				r.pass(10 * time.Second)
				if len(r.ledger.runs) > 0 {
					t.Fatalf("runs beside the holder of its key: %+v", &r.ledger)
				}
				giveBack()
				r.pass(time.Minute)
				if !c.ended(r, info) {
					t.Errorf("%s, %+v, %v", r.state(info), &r.ledger, r.events.Counts())
				}
			})
		})
	}
}

// neverRetried is a handler that checks that no retry of its task was counted.
func (r *rig) neverRetried(ctx context.Context, _ *asynq.Task) error {
	if n, _ := asynq.GetRetryCount(ctx); n != 0 {
		r.t.Errorf("retried %d times", n)
	}
	return r.work(ctx, 0)
}
