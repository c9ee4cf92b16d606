package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/newnodes"
	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/testutil"
)

// Short, so that much happens while we look.
const (
	ttl    = 3 * time.Second
	window = 50 * time.Millisecond
)

// load runs the service until ctx ends.
func load(ctx context.Context, t *telemetry) (err error) {
	nodes := []*testutil.Node{testutil.StartNode(), testutil.StartNode(), testutil.StartNode()}
	queue := testutil.StartNode() // asynq's own Redis
	defer queue.Close()
	defer closeNodes(nodes)

	var replicas []*replica
	for i := range 2 {
		r, err := newReplica(ctx, fmt.Sprintf("replica-%d", i), nodes, queue, t)
		if err != nil {
			return errors.Join(err, stop(replicas))
		}
		replicas = append(replicas, r)
	}
	var all sync.WaitGroup
	all.Go(func() { faults(ctx, nodes) })
	for _, r := range replicas {
		all.Go(func() { r.imports(ctx) })
		all.Go(func() { r.enqueue(ctx) })
		all.Go(func() { r.clients(ctx) })
	}
	all.Wait()
	return stop(replicas)
}

func closeNodes(nodes []*testutil.Node) {
	for _, n := range nodes {
		n.Close()
	}
}

// A replica is one process of the service, here all in one.
type replica struct {
	*telemetry
	name  string
	locks *core.Locker
	stops []func() error // in reverse
	queue *worker
	web   *web
}

func newReplica(ctx context.Context, name string, nodes []*testutil.Node, queue *testutil.Node, t *telemetry) (*replica, error) {
	r := &replica{telemetry: t, name: name}
	var clients []redis.UniversalClient
	for i, n := range nodes {
		clients = append(clients, n.ClientWith(func(o *redis.Options) {
			o.Addr = fmt.Sprintf("redis-%d:6379", i) // nodes in memory are reached by any name
			o.MaxRetries, o.ContextTimeoutEnabled = -1, true
		}))
	}
	locks, err := core.New(clients, core.TTL(ttl), core.WithClockWindow(window), core.WithObserver(t.observer),
		core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	r.locks = locks
	r.stops = append(r.stops, func() error {
		short, cancel := context.WithTimeout(context.Background(), ttl)
		defer cancel()
		return locks.Close(short)
	})
	err = newnodes.Declare(ctx, locks) // the nodes are new
	for _, start := range []func() error{r.startCron, r.startWeb, func() error { return r.startQueue(queue) }} {
		if err == nil {
			err = start()
		}
	}
	if err != nil {
		return nil, errors.Join(err, stop([]*replica{r}))
	}
	return r, nil
}

// stop ends replicas, all at once: what one of them waits for may be held by another.
func stop(replicas []*replica) error {
	errs := make([]error, len(replicas))
	var all sync.WaitGroup
	for i, r := range replicas {
		all.Go(func() {
			for _, f := range slices.Backward(r.stops) {
				errs[i] = errors.Join(errs[i], f())
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// imports is what a service does with locks of its own: long holds, and a wait for the other replica.
func (r *replica) imports(ctx context.Context) {
	locks, err := r.locks.With(core.Name("import"), core.MaxWait(5*time.Second), core.MaxHold(20*time.Second))
	if err != nil {
		panic(err) // the options above
	}
	for ctx.Err() == nil {
		under, span := r.tracer.Start(ctx, "import")
		locks.Do(under, "the import", func(ctx context.Context) error { return stage.Sleep(ctx, 2500*time.Millisecond) })
		span.End()
		stage.Sleep(ctx, time.Duration(rand.IntN(1000))*time.Millisecond)
	}
}

// faults is what happens to the nodes, over and over: one is away and comes back empty, then a quorum is away.
func faults(ctx context.Context, nodes []*testutil.Node) {
	for ctx.Err() == nil {
		if stage.Sleep(ctx, 5*time.Second) == nil {
			nodes[2].Down()
		}
		if stage.Sleep(ctx, 2*time.Second) == nil {
			nodes[2].RestartEmpty()
			nodes[2].Up()
		}
		if stage.Sleep(ctx, 5*time.Second) == nil {
			nodes[0].Down()
			nodes[1].Down()
		}
		stage.Sleep(ctx, ttl+time.Second)
		nodes[0].Up()
		nodes[1].Up()
		stage.Sleep(ctx, 5*time.Second)
	}
}
