package queuelock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/queuelock"
)

// charge enqueues a task for order 42, and serves it under a Middleware with the options. Its handler prints the key of
// its lease.
func charge(opts ...queuelock.Option) {
	locker, queue, end := standIns()
	defer end()
	ql, err := queuelock.New(locker, opts...)
	if err != nil {
		log.Fatal(err)
	}
	cfg := asynq.Config{Concurrency: 4, LogLevel: asynq.FatalLevel}
	if err := ql.Configure(&cfg); err != nil { // last, before the server is made
		log.Fatal(err)
	}
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Use(ql.Middleware)
	mux.HandleFunc("charge", func(ctx context.Context, _ *asynq.Task) error {
		defer close(done)
		lease, _ := core.FromContext(ctx)
		fmt.Println("charged under", lease.Key())
		return nil
	})
	srv := asynq.NewServerFromRedisClient(queue.Client(), cfg)
	if err := srv.Start(mux); err != nil {
		log.Fatal(err)
	}
	defer srv.Shutdown()
	client := asynq.NewClientFromRedisClient(queue.Client())
	if _, err := client.Enqueue(asynq.NewTask("charge", []byte(`{"order":{"id":42}}`)), queuelock.ID("charge", "42")); err != nil {
		log.Fatal(err)
	}
	<-done
}

// Tasks of one order run one at a time, on all servers together. Without WithKey, only redeliveries of the same task
// exclude each other.
func ExampleWithKey() {
	charge(queuelock.WithKey(queuelock.ByPayloadField("order", "id")))
	// Output: charged under 8:order.id/2:42
}

// Up to two of a server's workers wait for held keys; other tasks are given back.
func ExampleWithWaiters() {
	charge(queuelock.WithKey(queuelock.ByPayloadField("order", "id")), queuelock.WithWaiters(2))
	// Output: charged under 8:order.id/2:42
}

// A handler that has not returned 30 s after its context has ended loses its leases.
func ExampleWithGrace() {
	charge(queuelock.WithGrace(30 * time.Second))
	// Output: charged under 5:queue/4:task/21:lockkit:6:charge/2:42
}

// A completed task does not run again for a day.
func ExampleWithRetention() {
	charge(queuelock.WithRetention(24 * time.Hour))
	// Output: charged under 5:queue/4:task/21:lockkit:6:charge/2:42
}

// The key is made from a field of the payload, for tasks of all types.
func ExampleByPayloadField() {
	byOrder := queuelock.ByPayloadField("order", "id")
	fmt.Println(byOrder(context.Background(), asynq.NewTask("charge", []byte(`{"order":{"id":42}}`))))
	_, err := byOrder(context.Background(), asynq.NewTask("charge", []byte(`{}`)))
	fmt.Println(err)
	// Output:
	// 8:order.id/2:42 <nil>
	// payload field "order.id": it is missing
}

// The key is made from a header of the task.
func ExampleByHeader() {
	task := asynq.NewTaskWithHeaders("charge", nil, map[string]string{"tenant": "acme"})
	fmt.Println(queuelock.ByHeader("tenant")(context.Background(), task))
	// Output: 6:tenant/4:acme <nil>
}

// Tasks without the field run without a key.
func ExampleOptional() {
	byOrder := queuelock.Optional(queuelock.ByPayloadField("order", "id"))
	key, err := byOrder(context.Background(), asynq.NewTask("report", []byte(`{}`)))
	fmt.Printf("%q %v\n", key, err)
	// Output: "" <nil>
}

// A handler gives its task back for a minute, without counting a retry. The key is not granted during that time.
func ExampleCooldown() {
	handler := func(context.Context, *asynq.Task) error {
		limited := true // the called API says so
		if limited {
			return queuelock.Cooldown(time.Minute)
		}
		return nil
	}
	fmt.Println(handler(context.Background(), asynq.NewTask("charge", nil)))
	// Output: queuelock: the handler returned Cooldown(1m0s)
}

// Two imports of a customer run at a time, on all servers together.
func ExampleWithConcurrency() {
	locker, _, end := standIns()
	defer end()

	_, err := queuelock.New(locker,
		queuelock.WithKey(queuelock.ByPayloadField("customer")),
		queuelock.WithConcurrency(2))
	fmt.Println(err)
	// Output: <nil>
}

// The number of imports that run at a time depends on the customer's plan.
func ExampleWithConcurrencyFunc() {
	locker, _, end := standIns()
	defer end()

	plan := func(*asynq.Task) string { return "large" } // of the customer in the payload
	_, err := queuelock.New(locker,
		queuelock.WithKey(queuelock.ByPayloadField("customer")),
		queuelock.WithConcurrencyFunc(func(_ context.Context, t *asynq.Task) (int, error) {
			return map[string]int{"small": 1, "large": 5}[plan(t)], nil
		}))
	fmt.Println(err)
	// Output: <nil>
}
