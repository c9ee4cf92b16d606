package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/redis/go-redis/v9"
	"github.com/urfave/cli/v3"

	"github.com/lockkit/lockkit/core"
)

// An app is one invocation of lockctl.
type app struct {
	stdout *stickyWriter
	stderr io.Writer
	getenv func(string) string
	dial   func(urls []string, opts ...core.Option) ([]redis.UniversalClient, error)
}

// An opener returns the fleet that a command needs.
type opener func(*cli.Command) (*fleet, error)

// withFleet calls run with a fleet, for at most --timeout.
func (a *app) withFleet(
	ctx context.Context, cmd *cli.Command, open opener, run func(context.Context, *fleet) error,
) error {
	timeout := cmd.Duration("timeout")
	if timeout <= 0 {
		return usagef("--timeout must be more than 0")
	}
	timedOut := fmt.Errorf(
		"no result within %v: give it longer with --timeout, or ask doctor which node is slow", timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, timedOut)
	defer cancel()

	f, err := open(cmd)
	if err != nil {
		return err
	}
	defer f.close()

	err = run(ctx, f)
	if err == nil || ctx.Err() == nil {
		return err
	}

	// The context has ended, and its cause says more than an error from a node. But an error that reports a result or a
	// possible change must not be lost.
	if errors.Is(err, errProblemFound) || errors.Is(err, errMayBeDone) {
		return err
	}
	return context.Cause(ctx)
}

// errMayBeDone is matched by the error of a command that may have changed something.
var errMayBeDone = errors.New("may have been done")

// A change describes a change that a command makes.
type change struct {
	name       string // as in "the release"
	howToCheck string // tells the operator how to see whether the change was made
}

// withFleetToChange is withFleet for commands that change something. If the change was made, or may have been made, the
// error says so, whatever ended the command.
func (a *app) withFleetToChange(
	ctx context.Context, cmd *cli.Command, open opener, c change, run func(context.Context, *fleet) error,
) error {
	return a.withFleet(ctx, cmd, open, func(ctx context.Context, f *fleet) error {
		err := run(ctx, f)

		switch {
		case a.stdout.err != nil:
			return fmt.Errorf("%s is done, but its result could not be printed: %w", c.name, a.stdout.err)
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("%w; %s %w by some nodes or all: %s",
				context.Cause(ctx), c.name, errMayBeDone, c.howToCheck)
		}
		return err
	})
}
