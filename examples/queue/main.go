// Queue shows asynq tasks that run one at a time per order, and are completed once, in three scenes: the processes that
// work on them are killed at random; all tasks are about one order; and one of two workers cannot reach the locks.
//
//	go run ./examples/queue
//	go run ./examples/queue -scene hot
//
// Producers enqueue tasks, worker processes run them behind queuelock, and a ledger follows what they do. It uses
// redis-server where that is on PATH and embedded nodes otherwise. The exit status is 0 if every task was completed,
// none ran again after that, and no two ran for one order at a time; if the tasks of the one order took at most twice
// as long as their work alone; and if the worker without locks took few tasks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/stage"
)

var errOutOfTime = errors.New("out of time")

const (
	ttl    = 2 * time.Second // short, so that the keys of those who are killed are soon free
	window = ttl / 10        // so short a lease needs a smaller clock window, the same in all processes
)

func main() {
	if name, ok := os.LookupEnv(workerEnv); ok {
		stage.Play(name, work)
		return
	}
	plan := plan{}
	flag.IntVar(&plan.tasks, "tasks", 300, "how many tasks to enqueue")
	flag.IntVar(&plan.orders, "orders", 40, "how many orders they are about")
	flag.IntVar(&plan.kills, "kills", 6, "how many times to kill a worker")
	flag.DurationVar(&plan.limit, "limit", 2*time.Minute, "how long it may take")
	flag.StringVar(&plan.only, "scene", "", "which scene to show, if not all: kills, hot or cutoff")
	flag.Parse()
	stage.Run("queue", func(ctx context.Context) error { return run(ctx, plan) })
}

type plan struct {
	tasks, orders, kills int
	limit                time.Duration
	only                 string
}

// scenes are what there is to see, one after the other.
var scenes = []struct {
	name string
	show func(context.Context, *play, plan) error
}{
	{"kills", kills},
	{"hot", hotKey},
	{"cutoff", cutOff},
}

func run(ctx context.Context, plan plan) error {
	ctx, cancel := context.WithTimeoutCause(ctx, plan.limit, errOutOfTime)
	defer cancel()
	var errs []error
	shown := false
	for _, scene := range scenes {
		if plan.only != "" && plan.only != scene.name {
			continue
		}
		shown = true
		if err := onStage(ctx, func(p *play) error { return scene.show(ctx, p, plan) }); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", scene.name, err))
		}
		fmt.Println()
	}
	if !shown {
		return fmt.Errorf("there is no scene %q", plan.only)
	}
	return errors.Join(errs...)
}

var lockOptions = []core.Option{
	core.TTL(ttl), core.WithClockWindow(window),
	core.WithLogger(slog.New(slog.DiscardHandler)), // queuelock would say each duplicate; the ledger does
}
