package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// A stage is what a scene needs: nodes, a queue on the first of them, workers, and a ledger that follows what they do.
type stage struct {
	kind   string // of nodes
	queue  *redis.Client
	client *asynq.Client
	ledger *ledger
	crew   *crew
}

// onStage plays a scene on nodes that are new.
func onStage(ctx context.Context, play func(*stage) error) error {
	nodes, err := testutil.StartNodes(4) // one for asynq, three for locks
	if err != nil {
		return err
	}
	defer nodes.Close()
	if err := provision(ctx, nodes.Addrs[1:]); err != nil {
		return err
	}
	queue := redis.NewClient(&redis.Options{Addr: nodes.Addrs[0]})
	defer queue.Close()
	ledger := newLedger()
	s := &stage{nodes.Kind, queue, asynq.NewClientFromRedisClient(queue), ledger, newCrew(nodes.Addrs, ledger)}
	defer s.crew.killAll()
	return play(s)
}

// enqueue enqueues a task about an order.
func (s *stage) enqueue(ctx context.Context, order string, work time.Duration) error {
	data, err := json.Marshal(payload{order, work})
	if err != nil {
		return err
	}
	info, err := s.client.EnqueueContext(ctx, asynq.NewTask("charge", data))
	if err != nil {
		return err
	}
	s.ledger.enqueued(info.ID)
	return nil
}

// finish waits until all tasks are done, and has the workers end.
func (s *stage) finish(ctx context.Context) error {
	if err := s.drain(ctx); err != nil {
		return err
	}
	return s.crew.dismiss()
}

// drain waits until asynq has nothing left to do.
func (s *stage) drain(ctx context.Context) error {
	inspector := asynq.NewInspectorFromRedisClient(s.queue)
	for {
		info, err := inspector.GetQueueInfo("default")
		if err != nil {
			return err
		}
		if info.Archived > 0 {
			return fmt.Errorf("%d tasks were archived", info.Archived)
		}
		if info.Size == 0 {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %d tasks pending, %d active, %d waiting to be delivered again; %d completed",
				err, info.Pending, info.Active, info.Retry, s.ledger.tally().once)
		}
	}
}
