package queuelock

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/testutil"
)

// BenchmarkTask is one task through an asynq server whose handler does nothing, on real servers on loopback:
// from taking it off the queue to its end. With one worker, it is the time that a task takes.
func BenchmarkTask(b *testing.B) {
	for _, workers := range []int{1, 16} {
		for _, c := range []struct {
			name  string
			nodes int
			opts  []Option
		}{{"bare", 0, nil}, {"task,nodes=1", 1, nil}, {"task,nodes=3", 3, nil}, {"task+key,nodes=3", 3, []Option{WithKey(byPayload)}}} {
			b.Run(fmt.Sprintf("workers=%d/%s", workers, c.name), func(b *testing.B) { benchmarkTask(b, workers, c.nodes, c.opts) })
		}
	}
}

func byPayload(_ context.Context, t *asynq.Task) (string, error) { return string(t.Payload()), nil }

func benchmarkTask(b *testing.B, workers, nodes int, opts []Option) {
	queue := testutil.NewServers(b, 1)[0].Client()
	cfg := asynq.Config{Concurrency: workers, Logger: silent{}, LogLevel: asynq.FatalLevel}
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	var handler asynq.Handler = asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	if nodes > 0 {
		var clients []redis.UniversalClient
		for _, s := range testutil.NewServers(b, nodes) {
			clients = append(clients, s.Client())
		}
		locker, err := core.New(clients, core.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			b.Fatal(err)
		}
		if err := admin.Provision(b.Context(), locker); err != nil {
			b.Fatal(err)
		}
		m, err := New(locker, opts...)
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Configure(&cfg); err != nil {
			b.Fatal(err)
		}
		handler = m.Middleware(handler)
	}
	counted := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		err := handler.ProcessTask(ctx, t)
		if err != nil {
			b.Error(err)
		}
		if left.Add(-1) == 0 {
			close(done)
		}
		return err
	})
	client := asynq.NewClientFromRedisClient(queue)
	for i := range b.N {
		if _, err := client.Enqueue(asynq.NewTask("task", fmt.Append(nil, i))); err != nil {
			b.Fatal(err)
		}
	}
	server := asynq.NewServerFromRedisClient(queue, cfg)
	b.ReportAllocs()
	b.ResetTimer()
	if err := server.Start(counted); err != nil {
		b.Fatal(err)
	}
	<-done
	b.StopTimer()
	server.Shutdown()
}
