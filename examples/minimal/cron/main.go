// Cron runs a job once per tick, on any number of replicas of the service. Copy it.
//
//	export LOCKKIT_NODES=redis://localhost:6379   # or several, with commas
//	go run ./examples/minimal/cron                # in two terminals: each tick runs in one of them
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

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := run(ctx); err != nil {
		slog.Error("service failed", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	nodes := os.Getenv("LOCKKIT_NODES")
	if nodes == "" {
		return errors.New("LOCKKIT_NODES is not set; one Redis will do: LOCKKIT_NODES=redis://localhost:6379")
	}
	locker, err := core.Open(strings.Split(nodes, ","))
	if err != nil {
		return err // names every unfit node, and how to fix it
	}
	cron, err := cronlock.New(locker, "billing") // the replicas of a service share its jobs
	if err != nil {
		return err
	}
	_, err = cron.Add("invoices", cronlock.Crontab("*/5 * * * * *", time.UTC), invoices, // every five seconds
		cronlock.AtLeastOnce(3)) // up to 3 starts of a tick, if replicas die
	if err != nil {
		return err
	}
	slog.Info("started")
	<-ctx.Done()

	ending, cancel := context.WithTimeout(context.Background(), 25*time.Second) // shorter than the deployment waits
	defer cancel()
	return errors.Join(cron.Close(ending), locker.Close(ending))
}

// invoices is the job. Its context ends if the lease is lost, or when Close of the Locker cannot wait any longer.
func invoices(ctx context.Context) error {
	run, _ := cronlock.FromContext(ctx)
	// Write the invoices of run.Tick, so that a second attempt finds those of the first.
	slog.InfoContext(ctx, "invoices written", "tick", run.Tick, "attempt", run.Attempt, "token", run.FencingToken)
	return nil
}
