// Queue works on asynq tasks one at a time per order, and completes each of them once. Copy it.
//
//	export LOCKKIT_NODES=redis://localhost:6379 REDIS_URL=redis://localhost:6379   # the nodes for locks; asynq's Redis
//	go run ./examples/minimal/queue                                                # in two terminals
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/queuelock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := run(ctx); err != nil {
		slog.Error("worker failed", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	nodes, redis := os.Getenv("LOCKKIT_NODES"), os.Getenv("REDIS_URL")
	if nodes == "" || redis == "" {
		return errors.New("set LOCKKIT_NODES and REDIS_URL; one Redis will do for both: redis://localhost:6379")
	}
	asynqs, err := asynq.ParseRedisURI(redis)
	if err != nil {
		return err
	}
	locker, err := core.Open(strings.Split(nodes, ","))
	if err != nil {
		return err // names every unfit node, and how to fix it
	}
	ql, err := queuelock.New(locker, queuelock.WithKey(queuelock.ByPayloadField("order_id"))) // one at a time per order
	if err != nil {
		return err
	}
	cfg := asynq.Config{Concurrency: 20, ShutdownTimeout: 20 * time.Second}
	if err := ql.Configure(&cfg); err != nil { // last, before NewServer
		return err
	}
	mux := asynq.NewServeMux()
	mux.Use(ql.Middleware)
	mux.HandleFunc("charge", charge)
	server, client := asynq.NewServer(asynqs, cfg), asynq.NewClient(asynqs)
	if err := server.Start(mux); err != nil {
		return err
	}
	scheduler, err := ql.NewScheduler(client, "shop", time.UTC)
	if err != nil {
		return err
	}
	if err := scheduler.Register("recharge", "@every 5s", asynq.NewTask("charge", []byte(`{"order_id": 42}`))); err != nil {
		return err // each tick is enqueued once, whatever the replicas; other producers say queuelock.ID("charge", paymentID)
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeoutCause(context.Background(), 25*time.Second, errors.New("asynq has not shut down in time")) // shorter than the deployment waits
	defer cancel()
	ended, end := context.WithCancel(ending) // asynq takes minutes where its Redis does not answer
	go func() { scheduler.Shutdown(); server.Shutdown(); end() }()
	<-ended.Done()
	return errors.Join(context.Cause(ending), client.Close(), locker.Close(ending))
}

// charge is the handler. Its context also ends if the lease is lost.
func charge(ctx context.Context, t *asynq.Task) error {
	run, _ := queuelock.FromContext(ctx) // make the database reject a smaller token than it has seen, or an identity that it knows
	slog.InfoContext(ctx, "charged", "task", string(t.Payload()), "identity", run.Identity, "token", run.FencingToken)
	return nil
}
