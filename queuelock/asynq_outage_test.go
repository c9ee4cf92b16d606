package queuelock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/queuelock"
)

// Each test takes asynq's Redis away while tasks run. docs/recipes.md says what becomes of them.

// onePerOrder runs one task of each order at a time.
func onePerOrder(locker *core.Locker) (*queuelock.Middleware, error) {
	return queuelock.New(locker, queuelock.WithKey(queuelock.ByPayloadField("order")))
}

// outage takes asynq's Redis away for so long, while one task runs that takes a time of its own and others are pending.
// It returns how often the handler of the first task began, and with how many retries it ran last.
func (f *fleet) outage(away, handlerTakes time.Duration) (starts, retried int) {
	f.t.Helper()
	var begun, retries atomic.Int32
	running := make(chan struct{}, 10)
	handler := func(ctx context.Context, task *asynq.Task) error {
		if task.Type() != "long" {
			f.begin(task.Type())
			f.end(task.Type())
			return nil
		}

		n, _ := asynq.GetRetryCount(ctx)
		retries.Store(int32(n))
		begun.Add(1)
		running <- struct{}{}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(handlerTakes):
		}
		f.begin("long")
		f.end("long")
		return nil
	}
	f.serve(2, 4, nil, onePerOrder, handler)
	f.enqueue(asynq.NewTask("long", []byte(`{"order":"1"}`)), asynq.MaxRetry(5))
	<-running

	f.queue.Down()
	_, err := f.client.EnqueueContext(f.t.Context(), asynq.NewTask("lost", nil))
	if err == nil {
		f.t.Error("a task was enqueued without a Redis")
	}
	time.Sleep(away)
	f.queue.Up()
	for range 5 {
		f.enqueue(asynq.NewTask("short", []byte(`{"order":"1"}`)))
	}
	f.await(6)
	time.Sleep(10 * time.Minute) // asynq delivers what it takes for lost
	return int(begun.Load()), int(retries.Load())
}

// A handler that runs when asynq's Redis goes away notices nothing, if Redis is back before asynq's own lease on the
// task (30 s) has run out: the locks are on other nodes.
func TestAsynqsRedisIsAwayFor15s(t *testing.T) {
	race.SkipSweep(t)
	inBubble(t, func(f *fleet) {
		starts, retried := f.outage(15*time.Second, 20*time.Second)
		if starts != 1 || retried != 0 {
			t.Errorf("the handler began %d times, with %d retries", starts, retried)
		}
	})
}

// A task that completes while asynq's Redis is away is on record, and does not run again however asynq delivers it.
func TestTaskCompletesWhileAsynqsRedisIsAway(t *testing.T) {
	race.SkipSweep(t)
	inBubble(t, func(f *fleet) {
		starts, retried := f.outage(3*time.Minute, 10*time.Second)
		if starts != 1 || retried != 0 {
			t.Errorf("the handler began %d times, with %d retries", starts, retried)
		}
	})
}

// A handler that needs longer than asynq's own lease (30 s) has its context ended by asynq, and its task is delivered
// again, with a retry.
func TestHandlerOutlastsAsynqsLease(t *testing.T) {
	race.SkipSweep(t)
	inBubble(t, func(f *fleet) {
		starts, retried := f.outage(time.Minute, 40*time.Second)
		if starts != 2 || retried != 1 {
			t.Errorf("the handler began %d times, with %d retries", starts, retried)
		}
	})
}
