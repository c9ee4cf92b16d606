package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/queuelock"
	"github.com/lockkit/lockkit/testutil"
)

// A worker is an asynq server and what enqueues tasks for it; so does a scheduler.
type worker struct{ client *asynq.Client }

// startQueue works on tasks of which one runs per account, and which producers enqueue twice now and then.
func (r *replica) startQueue(node *testutil.Node) error {
	ql, err := queuelock.New(r.locks, queuelock.WithKey(queuelock.ByPayloadField("account")))
	if err != nil {
		return err
	}
	cfg := asynq.Config{
		Concurrency: 4, TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: 200 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }, LogLevel: asynq.FatalLevel,
	}
	if err := ql.Configure(&cfg); err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.Use(r.traced, ql.Middleware)
	mux.HandleFunc("charge", func(ctx context.Context, _ *asynq.Task) error {
		return stage.Sleep(ctx, time.Duration(50+rand.IntN(300))*time.Millisecond)
	})
	mux.HandleFunc("settle", func(ctx context.Context, _ *asynq.Task) error { return stage.Sleep(ctx, 20*time.Millisecond) })
	connect := func() redis.UniversalClient { return node.Client() }
	server := asynq.NewServerFromRedisClient(connect(), cfg)
	if err := server.Start(mux); err != nil {
		return err
	}
	r.stops = append(r.stops, func() error { server.Shutdown(); return nil })
	r.queue = &worker{asynq.NewClientFromRedisClient(connect())}
	scheduler, err := ql.NewScheduler(r.queue.client, "example", time.UTC)
	if err != nil {
		return err
	}
	r.stops = append(r.stops, func() error { scheduler.Shutdown(); return nil })
	return scheduler.Register("settle", "@every 1s", asynq.NewTask("settle", []byte(`{"account":"account-0"}`)))
}

// traced gives each task a span, as instrumentation of a queue does.
func (r *replica) traced(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		ctx, span := r.tracer.Start(ctx, "process "+t.Type())
		defer span.End()
		return next.ProcessTask(ctx, t)
	})
}

func (r *replica) enqueue(ctx context.Context) {
	for i := 0; stage.Sleep(ctx, 150*time.Millisecond) == nil; i++ {
		payload := fmt.Appendf(nil, `{"account":"account-%d"}`, rand.IntN(2))
		opts := []asynq.Option{queuelock.ID("charge", r.name, fmt.Sprint(i-i%4/3*101))} // each fourth repeats what is done by now
		if i%10 == 9 {                                                                  // has one attempt, and no patience
			opts = append(opts, asynq.MaxRetry(0), asynq.Timeout(time.Second))
		}
		r.queue.client.Enqueue(asynq.NewTask("charge", payload), opts...)
	}
}
