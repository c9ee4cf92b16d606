// Queue shows asynq tasks that run one at a time per order, and are completed once, while the processes that
// work on them are killed at random.
//
//	go run ./examples/queue
//
// Producers enqueue tasks, three worker processes run them behind queuelock, and a ledger follows what they
// do. It uses redis-server where that is on PATH and embedded nodes otherwise. The exit status is 0 if every
// task was completed, none ran again after that, and no two ran for one order at a time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

const (
	ttl    = 2 * time.Second // short, so that the keys of those who are killed are soon free
	window = ttl / 10        // so short a lease needs a smaller clock window, the same in all processes
)

func main() {
	logging.Disable() // go-redis prints each failed dial; what a node's failure means, the Lockers say
	if name, ok := os.LookupEnv(workerEnv); ok {
		if err := work(name); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		return
	}
	plan := plan{}
	flag.IntVar(&plan.tasks, "tasks", 300, "how many tasks to enqueue")
	flag.IntVar(&plan.orders, "orders", 40, "how many orders they are about")
	flag.IntVar(&plan.kills, "kills", 6, "how many times to kill a worker")
	flag.DurationVar(&plan.limit, "limit", 2*time.Minute, "how long it may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, plan); err != nil {
		fmt.Fprintln(os.Stderr, "queue:", err)
		os.Exit(1)
	}
}

type plan struct {
	tasks, orders, kills int
	limit                time.Duration
}

func run(ctx context.Context, plan plan) error {
	ctx, cancel := context.WithTimeoutCause(ctx, plan.limit, errors.New("out of time"))
	defer cancel()
	nodes, err := testutil.StartNodes(4) // one for asynq, three for locks
	if err != nil {
		return err
	}
	defer nodes.Close()
	queue := redis.NewClient(&redis.Options{Addr: nodes.Addrs[0]})
	defer queue.Close()
	if err := provision(ctx, nodes.Addrs[1:]); err != nil {
		return err
	}

	fmt.Printf("%d tasks about %d orders; three worker processes; four nodes, %s\n", plan.tasks, plan.orders, nodes.Kind)
	ledger := newLedger()
	crew := newCrew(nodes.Addrs, ledger)
	defer crew.killAll()
	for _, name := range []string{"alice", "bob", "carol"} {
		if err := crew.hire(name); err != nil {
			return err
		}
	}
	produced := make(chan error, 1)
	go func() { produced <- produce(ctx, asynq.NewClientFromRedisClient(queue), ledger, plan) }()
	err = crew.killAtRandom(ctx, queue, plan.kills)
	err = errors.Join(err, <-produced)
	if err == nil {
		err = drain(ctx, asynq.NewInspectorFromRedisClient(queue), ledger)
	}
	err = errors.Join(err, crew.dismiss())
	fmt.Print("\n", ledger)
	return errors.Join(err, ledger.check())
}

// provision declares the nodes new, which they are: without it they would not vote at first, as if they had
// lost their memory.
func provision(ctx context.Context, addrs []string) error {
	locker, err := openLocks(addrs)
	if err != nil {
		return err
	}
	return errors.Join(locker.Provision(ctx), locker.Close(ctx))
}

func openLocks(addrs []string) (*core.Locker, error) {
	var urls []string
	for _, addr := range addrs {
		urls = append(urls, "redis://"+addr)
	}
	return core.Open(urls, core.TTL(ttl), core.WithClockWindow(window),
		core.WithLogger(slog.New(slog.DiscardHandler))) // queuelock would say each duplicate; the ledger does
}

// produce enqueues all tasks, some at once and the others one by one.
func produce(ctx context.Context, client *asynq.Client, ledger *ledger, plan plan) error {
	for i := range plan.tasks {
		if i > plan.tasks/4 {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		info, err := client.EnqueueContext(ctx, asynq.NewTask("charge", fmt.Appendf(nil, `{"order":%d}`, i%plan.orders)))
		if err != nil {
			return err
		}
		ledger.enqueued(info.ID)
	}
	return nil
}

// drain waits until asynq has nothing left to do.
func drain(ctx context.Context, inspector *asynq.Inspector, ledger *ledger) error {
	for {
		info, err := inspector.GetQueueInfo("default")
		if err != nil {
			return err
		}
		if info.Archived > 0 {
			return fmt.Errorf("%d tasks were archived", info.Archived)
		}
		if info.Size == 0 {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%w: %d tasks pending, %d active, %d waiting to be delivered again; %d completed",
				err, info.Pending, info.Active, info.Retry, ledger.tally().once)
		}
	}
}

// sleep returns early, with an error, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
