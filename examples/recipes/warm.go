package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Warm returns when a lock could be had, so that the first request does not wait for new or restarted nodes. Call it before
// the server listens, with a ctx that ends as late as the deployment waits: after the max TTL (10 s) and a little more.
func Warm(ctx context.Context, locker *core.Locker) error {
	var trouble error // what each node said last
	for {
		err := locker.Ready(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, core.ErrUnavailable):
			trouble = err
		}
		pause := time.Second
		if op, ok := errors.AsType[*core.OpError](err); ok && op.RetryAfter > 0 {
			pause = min(pause, op.RetryAfter)
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), trouble)
		case <-time.After(pause):
		}
	}
}
