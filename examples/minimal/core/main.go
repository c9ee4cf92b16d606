// Core pays an invoice under a lock, on any number of machines. Copy it.
//
//	export LOCKKIT_NODES=redis://localhost:6379   # or several, with commas
//	go run ./examples/minimal/core 42
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lockkit/lockkit/core"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	if err := run(ctx, os.Args[1:]); err != nil {
		slog.Error("invoice not paid", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) != 1 {
		return errors.New("which invoice? go run ./examples/minimal/core 42")
	}
	nodes := os.Getenv("LOCKKIT_NODES")
	if nodes == "" {
		return errors.New("LOCKKIT_NODES is not set; one Redis will do: LOCKKIT_NODES=redis://localhost:6379")
	}
	locker, err := core.Open(strings.Split(nodes, ","))
	if err != nil {
		return err // names every unfit node, and how to fix it
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, locker.Close(ctx))
	}()

	// Once: later calls within the retention return ErrDone. Do would pay again.
	err = locker.Once(ctx, core.Key("invoice", args[0]), func(ctx context.Context) error {
		lease, _ := core.FromContext(ctx)
		return pay(ctx, args[0], lease.FencingToken())
	}, core.Name("pay"), core.MaxWait(time.Minute))
	switch core.ClassOf(err) {
	case core.ClassDone:
		slog.Info("paid before", "invoice", args[0])
		return nil
	case core.ClassHeld:
		return fmt.Errorf("somebody else is still at it: %w", err)
	case core.ClassLost:
		return fmt.Errorf("find out what became of the payment before you try again: %w", err)
	default:
		return err
	}
}

// pay is the work. Its context ends if the lease is lost; the store must refuse a token smaller than one it has seen.
func pay(ctx context.Context, invoice string, token uint64) error {
	select {
	case <-time.After(100 * time.Millisecond): // UPDATE … WHERE token <= $token
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	slog.Info("paid", "invoice", invoice, "token", token)
	return nil
}
