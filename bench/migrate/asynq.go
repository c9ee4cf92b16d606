package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/queuelock"
)

func asynqBefore(ctx context.Context, client *asynq.Client, payload []byte) error {
	_, err := client.EnqueueContext(ctx, asynq.NewTask("charge", payload), asynq.Unique(time.Hour))
	if errors.Is(err, asynq.ErrDuplicateTask) {
		return nil // one with that payload is in the queue, or at work, and no hour has passed
	}
	return err
}

func asynqRunner(locker *core.Locker) (*queuelock.Runner, error) {
	ql, err := queuelock.New(locker, queuelock.ForType("charge", // the same for producers and servers
		queuelock.WithIdentity(queuelock.ByPayloadField("payment_id")), // what makes two tasks one
		queuelock.WithKey(queuelock.ByPayloadField("order_id")),        // what runs one at a time
		queuelock.WithRetention(24*time.Hour)))
	return ql, err
}

func asynqAfter(ctx context.Context, ql *queuelock.Runner, client *asynq.Client, payload []byte) error {
	_, err := ql.Enqueue(ctx, client, asynq.NewTask("charge", payload))
	if errors.Is(err, queuelock.ErrEnqueued) || errors.Is(err, queuelock.ErrCompleted) {
		return nil // one of that identity was enqueued within the retention, or has been completed
	}
	return err
}

func asynqServe(server *asynq.Server, ql *queuelock.Runner, charge asynq.HandlerFunc) error {
	mux := asynq.NewServeMux()
	mux.Use(ql.Middleware) // and ql.Configure(&cfg) before asynq.NewServer
	mux.HandleFunc("charge", charge)
	return server.Start(mux)
}

func asynqBoth(ctx context.Context, ql *queuelock.Runner, client *asynq.Client, payload []byte) error {
	_, err := ql.Enqueue(ctx, client, asynq.NewTask("charge", payload), asynq.Unique(time.Hour))
	if errors.Is(err, queuelock.ErrEnqueued) || errors.Is(err, queuelock.ErrCompleted) || errors.Is(err, asynq.ErrDuplicateTask) {
		return nil
	}
	return err
}
