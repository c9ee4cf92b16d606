// Package stage has what the demos share: how a demo begins and ends, new nodes, processes of its own, and pauses.
package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/examples/internal/newnodes"
)

// Run runs a demo until it returns, and exits with status 1 if it fails. Its context ends with the first Ctrl-C.
func Run(name string, demo func(context.Context) error) {
	logging.Disable() // go-redis prints each failed dial; what a node's failure means, the Lockers say
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once, and its children with it
	exit(name, demo(ctx))
}

// exit ends the process if err is not nil.
func exit(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "\n"+name+": "))
		os.Exit(1)
	}
}

// Provision declares nodes new, as the script does that sets nodes up: without it they would not vote before the
// quarantine of the restart guard is over. The options are those of the demo's other Lockers.
func Provision(ctx context.Context, urls []string, opts ...core.Option) error {
	locker, err := core.Open(urls, opts...)
	if err != nil {
		return err
	}
	return errors.Join(newnodes.Declare(ctx, locker), locker.Close(ctx))
}

// Sleep returns early, with an error, when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
