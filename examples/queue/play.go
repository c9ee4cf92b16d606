package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

// A play is what a scene needs: nodes, a queue on the first of them, workers, and a ledger that follows what they do.
type play struct {
	kind   string // of nodes
	queue  *redis.Client
	client *asynq.Client
	ledger *ledger
	crew   *crew
}

// onStage shows a scene on nodes that are new.
func onStage(ctx context.Context, show func(*play) error) error {
	nodes, err := testutil.StartNodes(4) // one for asynq, three for locks
	if err != nil {
		return err
	}
	defer nodes.Close()
	asynqs, locks := nodes.Addrs[0], nodes.URLs()[1:]
	if err := stage.Provision(ctx, locks, lockOptions...); err != nil {
		return err
	}
	queue := redis.NewClient(&redis.Options{Addr: asynqs})
	defer queue.Close()
	ledger := newLedger()
	p := &play{nodes.Kind, queue, asynq.NewClientFromRedisClient(queue), ledger, &crew{queue: asynqs, locks: locks, ledger: ledger}}
	defer p.crew.killAll()
	return show(p)
}

// enqueue enqueues a task about an order.
func (p *play) enqueue(ctx context.Context, order string, work time.Duration) error {
	data, err := json.Marshal(payload{order, work})
	if err != nil {
		return err
	}
	info, err := p.client.EnqueueContext(ctx, asynq.NewTask("charge", data))
	if err != nil {
		return err
	}
	p.ledger.enqueued(info.ID)
	return nil
}

// finish waits until all tasks are done, and has the workers end.
func (p *play) finish(ctx context.Context) error {
	if err := p.drain(ctx); err != nil {
		return err
	}
	return p.crew.dismiss()
}

// drain waits until asynq has nothing left to do.
func (p *play) drain(ctx context.Context) error {
	inspector := asynq.NewInspectorFromRedisClient(p.queue)
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
		if err := stage.Sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %d tasks pending, %d active, %d waiting to be delivered again; %d completed",
				err, info.Pending, info.Active, info.Retry, p.ledger.tally().once)
		}
	}
}
