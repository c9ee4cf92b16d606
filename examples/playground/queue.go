package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// A queue is asynq's Redis, which nobody breaks, and what enqueues tasks there.
type queue struct {
	node   *testutil.Nodes
	addr   string
	redis  *redis.Client
	client *asynq.Client
}

func startQueue() (*queue, error) {
	node, err := startNodes(1)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: node.Addrs[0], DisableIdentity: true})
	return &queue{node, node.Addrs[0], client, asynq.NewClientFromRedisClient(client)}, nil
}

func (q *queue) close() {
	q.redis.Close()
	q.node.Close()
}

func (q *queue) enqueue(ctx context.Context, order string) error {
	data, err := json.Marshal(charge{order})
	if err != nil {
		return err
	}
	_, err = q.client.EnqueueContext(ctx, asynq.NewTask("charge", data), asynq.Timeout(time.Minute))
	return err
}

// orphan makes all active tasks look as if their worker were dead, also those that are being worked on: asynq takes more
// than a minute to notice it, and a server that starts looks for such tasks. That is what clocks do which are far apart.
func (q *queue) orphan() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, id := range q.redis.LRange(ctx, "asynq:{default}:active", 0, -1).Val() {
		q.redis.ZAddXX(ctx, "asynq:{default}:lease", redis.Z{Score: 1, Member: id}) // or else asynq takes its time
	}
}
