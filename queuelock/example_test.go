package queuelock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/queuelock"
	"github.com/lockkit/lockkit/testutil"
)

func ExampleNew() {
	// Stand-ins for Redis servers, so that this runs: three for locks, one for asynq.
	var nodes []*testutil.Node
	for range 4 {
		node := testutil.NewNode()
		defer node.Close()
		nodes = append(nodes, node)
	}
	locks, err := core.New(testutil.Clients(nodes[:3]))
	if err != nil {
		log.Fatal(err)
	}
	if err := locks.Provision(context.Background()); err != nil { // once, because these nodes are new
		log.Fatal(err)
	}
	queue := nodes[3].Client()

	ql, err := queuelock.New(locks, queuelock.WithKey(queuelock.ByPayloadField("order_id")))
	if err != nil {
		log.Fatal(err)
	}
	cfg := asynq.Config{Concurrency: 20, LogLevel: asynq.FatalLevel}
	if err := ql.Configure(&cfg); err != nil { // last, before the server is made
		log.Fatal(err)
	}
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Use(ql.Middleware)
	mux.HandleFunc("charge", func(ctx context.Context, t *asynq.Task) error {
		e, _ := queuelock.FromContext(ctx)
		fmt.Println("charging under", e.Identity)
		close(done)
		return nil // pass e.FencingToken or e.Identity on to whatever is charged
	})
	srv := asynq.NewServerFromRedisClient(queue, cfg)
	if err := srv.Start(mux); err != nil {
		log.Fatal(err)
	}
	client := asynq.NewClientFromRedisClient(queue)
	if _, err := client.Enqueue(asynq.NewTask("charge", []byte(`{"order_id":42}`)), asynq.TaskID("charge-42")); err != nil {
		log.Fatal(err)
	}
	<-done
	srv.Shutdown()
	if err := locks.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: charging under queue/task/7:default/9:charge-42
}
