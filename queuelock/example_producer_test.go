package queuelock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/queuelock"
	"github.com/lockkit/lockkit/testutil"
)

// standIns are stand-ins for Redis servers, so that the examples run: three for locks, one for asynq.
func standIns() (locker *core.Locker, queue *testutil.Node, end func()) {
	var nodes []*testutil.Node
	for range 4 {
		nodes = append(nodes, testutil.StartNode())
	}
	locker, err := core.New(testutil.Clients(nodes[:3]))
	if err != nil {
		log.Fatal(err)
	}
	if err := locker.Provision(context.Background()); err != nil { // once, because these nodes are new
		log.Fatal(err)
	}
	return locker, nodes[3], func() {
		if err := locker.Close(context.Background()); err != nil {
			log.Fatal(err)
		}
		for _, n := range nodes {
			n.Close()
		}
	}
}

// Three replicas, each with a scheduler of its own.
func ExampleScheduler() {
	locker, queue, end := standIns()
	defer end()
	ql, err := queuelock.New(locker)
	if err != nil {
		log.Fatal(err)
	}
	cfg := asynq.Config{LogLevel: asynq.FatalLevel}
	if err := ql.Configure(&cfg); err != nil {
		log.Fatal(err)
	}
	var first sync.Once
	ran := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Use(ql.Middleware)
	mux.HandleFunc("invoices", func(ctx context.Context, t *asynq.Task) error {
		first.Do(func() {
			fmt.Printf("%s for %s\n", t.Type(), t.Payload())
			close(ran)
		})
		return nil
	})
	srv := asynq.NewServerFromRedisClient(queue.Client(), cfg)
	if err := srv.Start(mux); err != nil {
		log.Fatal(err)
	}
	defer srv.Shutdown()

	client := asynq.NewClientFromRedisClient(queue.Client())
	for range 3 {
		scheduler, err := queuelock.NewScheduler(client, locker, "billing")
		if err != nil {
			log.Fatal(err)
		}
		if _, err := scheduler.Register("@every 1s", asynq.NewTask("invoices", []byte("everybody")), asynq.MaxRetry(5)); err != nil {
			log.Fatal(err)
		}
		if err := scheduler.Start(); err != nil {
			log.Fatal(err)
		}
		defer scheduler.Shutdown()
	}
	<-ran
	// Output: invoices for everybody
}

// An order is charged once, whoever asks for it and by whatever queue.
func ExampleRunner_Enqueue() {
	locker, queue, end := standIns()
	defer end()
	ql, err := queuelock.New(locker, queuelock.WithIdentity(queuelock.ByPayloadField("order_id"))) // as the servers have it
	if err != nil {
		log.Fatal(err)
	}
	client := asynq.NewClientFromRedisClient(queue.Client())
	for _, name := range []string{"default", "critical"} {
		info, err := ql.Enqueue(context.Background(), client, asynq.NewTask("charge", []byte(`{"order_id":42}`)), asynq.Queue(name))
		switch {
		case errors.Is(err, queuelock.ErrEnqueued), errors.Is(err, queuelock.ErrCompleted):
			fmt.Println("nothing to do")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("enqueued into", info.Queue)
		}
	}
	// Output:
	// enqueued into default
	// nothing to do
}
