// Leader works in one process of the service at a time, and in no other. Copy it.
//
//	export LOCKKIT_NODES=redis://localhost:6379   # or several, with commas
//	go run ./examples/minimal/leader              # in two terminals: end the first, and the second one leads
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
	"github.com/lockkit/lockkit/core/leader"
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
	elector, err := leader.New(locker, "billing", leader.OnElected(lead)) // the processes of a group have one leader
	if err != nil {
		return err
	}
	slog.Info("started")
	<-ctx.Done()

	ending, cancel := context.WithTimeout(context.Background(), 25*time.Second) // shorter than the deployment waits
	defer cancel()
	return errors.Join(elector.Close(ending), locker.Close(ending))
}

// lead is the work of the leader. ctx ends when this process must stop leading: another one leads then.
func lead(ctx context.Context, term leader.Term) {
	slog.InfoContext(ctx, "leading", "token", term.FencingToken) // a store must refuse a smaller token than its last
	defer slog.InfoContext(ctx, "not leading any more")
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
			slog.InfoContext(ctx, "swept")
		}
	}
}
