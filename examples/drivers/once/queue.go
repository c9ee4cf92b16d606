package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/examples/internal/stage"
)

// A queue is asynq's default queue. It makes asynq deliver the tasks of a dead process sooner: asynq alone takes a minute
// to notice that a task is orphaned, and more time until it delivers the task again.
type queue struct {
	redis     *redis.Client
	inspector *asynq.Inspector
}

func newQueue(addr string) *queue {
	return &queue{redis.NewClient(&redis.Options{Addr: addr}), asynq.NewInspector(asynq.RedisClientOpt{Addr: addr})}
}

func (q *queue) close() {
	q.inspector.Close()
	q.redis.Close()
}

// orphan makes all active tasks look as if their process had died, even if the process lives. A process looks for such
// tasks as it starts.
func (q *queue) orphan(ctx context.Context) error {
	active, err := q.redis.LRange(ctx, "asynq:{default}:active", 0, -1).Result()
	if err != nil {
		return err
	}
	for _, id := range active {
		err := q.redis.ZAddXX(ctx, "asynq:{default}:lease", redis.Z{Score: 1, Member: id}).Err()
		if err != nil {
			return err
		}
	}
	return nil
}

// hurry delivers the tasks that wait for a retry, until ctx ends.
func (q *queue) hurry(ctx context.Context) error {
	for {
		err := stage.Sleep(ctx, 200*time.Millisecond)
		if err != nil {
			return nil //nolint:nilerr // the end of ctx is the end of the work
		}

		queues, err := q.inspector.Queues()
		if err != nil {
			return err
		}
		if len(queues) == 0 { // asynq makes the queue with the first task
			continue
		}

		_, err = q.inspector.RunAllRetryTasks("default")
		if err != nil {
			return err
		}
	}
}

// drain waits until all tasks are completed.
func (q *queue) drain(ctx context.Context) error {
	for {
		info, err := q.inspector.GetQueueInfo("default")
		if err != nil {
			return err
		}
		if info.Archived > 0 {
			return fmt.Errorf("asynq has archived %d tasks", info.Archived)
		}
		if info.Pending+info.Active+info.Scheduled+info.Retry == 0 {
			return nil
		}

		err = stage.Sleep(ctx, 100*time.Millisecond)
		if err != nil {
			return fmt.Errorf("tasks: %d pending, %d active, %d scheduled, %d to retry: %w",
				info.Pending, info.Active, info.Scheduled, info.Retry, err)
		}
	}
}
