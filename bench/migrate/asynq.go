package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/queuelock"
)

// A charge is the payload of a task.
type charge struct {
	PaymentID json.Number `json:"payment_id"`
	OrderID   json.Number `json:"order_id"`
}

func (c charge) task() *asynq.Task {
	payload, _ := json.Marshal(c)
	return asynq.NewTask("charge", payload)
}

func asynqBefore(ctx context.Context, client *asynq.Client, c charge) error {
	_, err := client.EnqueueContext(ctx, c.task(), asynq.Unique(time.Hour))
	if errors.Is(err, asynq.ErrDuplicateTask) {
		return nil // one with that payload is in the queue, or at work, and no hour has passed
	}
	return err
}

func asynqMiddleware(locker *core.Locker) (*queuelock.Middleware, error) {
	ql, err := queuelock.New(locker,
		queuelock.WithKey(queuelock.ByPayloadField("order_id")), // what runs one at a time
		queuelock.WithRetention(24*time.Hour))
	return ql, err
}

func asynqAfter(ctx context.Context, client *asynq.Client, c charge) error {
	_, err := client.EnqueueContext(ctx, c.task(), queuelock.ID("charge", c.PaymentID.String())) // what makes two tasks one
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil // that payment is in the queue, or at work; one that has completed is enqueued, and not run
	}
	return err
}

func asynqServe(server *asynq.Server, ql *queuelock.Middleware, charge asynq.HandlerFunc) error {
	mux := asynq.NewServeMux()
	mux.Use(ql.Middleware) // and ql.Configure(&cfg) before asynq.NewServer
	mux.HandleFunc("charge", charge)
	return server.Start(mux)
}

func asynqBoth(ctx context.Context, client *asynq.Client, c charge) error {
	_, err := client.EnqueueContext(ctx, c.task(), queuelock.ID("charge", c.PaymentID.String()), asynq.Unique(time.Hour))
	if errors.Is(err, asynq.ErrTaskIDConflict) || errors.Is(err, asynq.ErrDuplicateTask) {
		return nil
	}
	return err
}
