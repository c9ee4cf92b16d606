// Package newnodes declares the nodes of a demo new.
package newnodes

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
)

const (
	// startTime is how long the nodes of a demo may take until they answer, on a machine that compiles meanwhile.
	startTime = time.Minute
	pause     = 100 * time.Millisecond
)

// Declare calls [admin.Provision], as the script does that sets nodes up: without it new nodes would not vote before the
// quarantine of the restart guard is over. It tries again if the nodes do not answer in time.
func Declare(ctx context.Context, locker *core.Locker) error {
	over := time.Now().Add(startTime)
	for {
		err := admin.Provision(ctx, locker)
		if err == nil || !errors.Is(err, core.ErrUnavailable) || time.Now().After(over) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
