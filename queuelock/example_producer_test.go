package queuelock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/queuelock"
	"github.com/lockkit/lockkit/testutil"
)

// standIns starts stand-ins for Redis servers, so that the examples run: three for locks, one for asynq. end stops
// them.
func standIns() (locker *core.Locker, queue *testutil.Node, end func()) {
	var nodes []*testutil.Node
	for range 4 {
		nodes = append(nodes, testutil.StartNode())
	}
	locker, err := core.New(testutil.Clients(nodes[:3]))
	if err != nil {
		log.Fatal(err)
	}
	if err := admin.Provision(context.Background(), locker); err != nil { // once, because these nodes are new
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

// Three replicas have a Scheduler each. Together they enqueue each tick once.
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
		scheduler, err := ql.NewScheduler(client, "billing", time.UTC)
		if err != nil {
			log.Fatal(err)
		}
		defer scheduler.Shutdown()
		if err := scheduler.Register("invoices", "@every 1s", asynq.NewTask("invoices", []byte("everybody")), asynq.MaxRetry(5)); err != nil {
			log.Fatal(err)
		}
	}
	<-ran
	// Output: invoices for everybody
}

// An order is charged once, even if its charge is enqueued twice.
func ExampleID() {
	_, queue, end := standIns()
	defer end()
	client := asynq.NewClientFromRedisClient(queue.Client())
	for range 2 {
		info, err := client.Enqueue(asynq.NewTask("charge", []byte(`{"order_id":42}`)), queuelock.ID("charge", "42"))
		switch {
		case errors.Is(err, asynq.ErrTaskIDConflict):
			fmt.Println("nothing to do")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("enqueued as", info.ID)
		}
	}
	// Output:
	// enqueued as lockkit:6:charge/2:42
	// nothing to do
}
