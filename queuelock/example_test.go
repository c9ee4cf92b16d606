package queuelock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/queuelock"
)

func ExampleNew() {
	locker, queue, end := standIns() // stand-ins for Redis servers, so that this runs
	defer end()
	ql, err := queuelock.New(locker, queuelock.WithKey(queuelock.ByPayloadField("order_id")))
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
		run, _ := queuelock.FromContext(ctx)
		fmt.Println("charging under", run.Identity)
		close(done)
		return nil // pass run.FencingToken or run.Identity to the payment service
	})
	srv := asynq.NewServerFromRedisClient(queue.Client(), cfg)
	if err := srv.Start(mux); err != nil {
		log.Fatal(err)
	}
	client := asynq.NewClientFromRedisClient(queue.Client())
	if _, err := client.Enqueue(asynq.NewTask("charge", []byte(`{"order_id":42}`)), queuelock.ID("charge", "42")); err != nil {
		log.Fatal(err)
	}
	<-done
	srv.Shutdown()
	// Output: charging under 5:queue/4:task/21:lockkit:6:charge/2:42
}

// A unit test of a handler calls it with a context of NewContext.
func ExampleNewContext() {
	charge := func(ctx context.Context, t *asynq.Task) error {
		run, _ := queuelock.FromContext(ctx)
		fmt.Printf("%s: charged with key %s and token %d\n", t.Payload(), run.Identity, run.FencingToken)
		return nil
	}
	ctx := queuelock.NewContext(context.Background(), queuelock.Run{Identity: "charge-42", FencingToken: 7})
	if err := charge(ctx, asynq.NewTask("charge", []byte(`{"order_id":42}`))); err != nil {
		log.Fatal(err)
	}
	// Output: {"order_id":42}: charged with key charge-42 and token 7
}
