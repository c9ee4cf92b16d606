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
	for {
		err := locker.Ready(ctx)
		if err == nil {
			return nil
		}
		pause := time.Second
		if op, ok := errors.AsType[*core.OpError](err); ok && op.RetryAfter > 0 {
			pause = min(pause, op.RetryAfter)
		}
		select {
		case <-ctx.Done():
			return err // says what each node answered
		case <-time.After(pause):
		}
	}
}
