package main

import (
	"context"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

// tasksDropped enqueues a task on its last attempt whose key stays held, and a task that has no key. asynq archives
// both, unrun.
func tasksDropped(ctx context.Context, s *scene) {
	queue := testutil.StartNode()
	defer queue.Close()
	r := &replica{telemetry: s.telemetry, name: "scene", locks: s.locks}
	if err := r.startQueue(queue); err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer stop([]*replica{r})
	all.Go(func() { holds(ctx, s.stranger, core.Key("account", "held")) })
	if stage.Sleep(ctx, time.Second) != nil {
		return
	}
	for _, task := range []*asynq.Task{
		asynq.NewTask("charge", []byte(`{"account":"held","order":"1"}`)),
		asynq.NewTask("refund", []byte(`{"order":"2"}`)),
	} {
		if _, err := r.queue.client.EnqueueContext(ctx, task, asynq.MaxRetry(0), asynq.Timeout(3*time.Second)); err != nil && ctx.Err() == nil {
			panic(err)
		}
	}
	<-ctx.Done()
}
