package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/queuelock"
)

// What a worker process is told by its environment: its name, and where the nodes are.
const (
	workerEnv = "LOCKKIT_QUEUE_WORKER"
	queueEnv  = "LOCKKIT_QUEUE_REDIS"
	locksEnv  = "LOCKKIT_QUEUE_NODES"
)

// work is a worker process. It ends when it is dismissed, and says on its standard output what it does.
func work(dismissed <-chan struct{}) error {
	locks, err := core.Open(strings.Split(os.Getenv(locksEnv), ","), lockOptions...)
	if err != nil {
		return err
	}
	defer locks.Close(context.Background()) // after the server: it waits for the leases of handlers that still run

	ql, err := queuelock.New(locks, queuelock.WithKey(queuelock.ByPayloadField("order"))) // one at a time per order
	if err != nil {
		return err
	}
	cfg := asynq.Config{
		Concurrency:              8,
		TaskCheckInterval:        50 * time.Millisecond,
		DelayedTaskCheckInterval: 200 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return time.Second },
		LogLevel:                 asynq.FatalLevel,
	}
	if err := ql.Configure(&cfg); err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.Use(outcome, ql.Middleware)
	mux.HandleFunc("charge", charge)

	queue := redis.NewClient(&redis.Options{Addr: os.Getenv(queueEnv)})
	defer queue.Close()
	server := asynq.NewServerFromRedisClient(queue, cfg)
	if err := server.Start(mux); err != nil {
		return err
	}
	<-dismissed
	server.Shutdown()
	return nil
}

// A payload is what a task is about, and how long it takes.
type payload struct {
	Order string        `json:"order"`
	Work  time.Duration `json:"work"`
}

// charge is the handler.
func charge(ctx context.Context, t *asynq.Task) error {
	var charge payload
	if err := json.Unmarshal(t.Payload(), &charge); err != nil {
		return err
	}
	*ctx.Value(ranKey{}).(*bool) = true
	id, _ := asynq.GetTaskID(ctx)
	lease, _ := core.FromContext(ctx)
	report("begin", id, lease.Key(), lease.FencingToken(), time.Now())

	err := stage.Sleep(ctx, charge.Work) // it ends early if the lease does

	end := time.Now()
	if until := lease.ValidUntil(); until.Before(end) {
		end = until
	}
	report("end", id, lease.Key(), lease.FencingToken(), end)
	return err
}

type ranKey struct{}

// outcome says what asynq handed to the worker, and what it is told.
func outcome(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		report("taken", id, "", 0, time.Now())
		var ran bool
		err := next.ProcessTask(context.WithValue(ctx, ranKey{}, &ran), t)
		switch {
		case err == nil && ran:
			report("completed", id, "", 0, time.Now())
		case err == nil:
			report("duplicate", id, "", 0, time.Now())
		}
		return err
	})
}

// report writes one line, at once, so that a kill does not cut it.
func report(what, task, key string, token uint64, at time.Time) {
	fmt.Printf("%s %s %d %d %s\n", what, task, token, at.UnixNano(), key)
}
