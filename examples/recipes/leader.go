package recipes

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
)

// OneGoroutine runs work on one process of the fleet. When that process dies or closes its Elector, work starts on
// another one. If work returns before its context has ended, it is called again. Close the Elector before the Locker.
func OneGoroutine(locker *core.Locker, work func(ctx context.Context, token uint64) error) (*leader.Elector, error) {
	return leader.New(locker, "outbox", leader.OnElected(func(ctx context.Context, t leader.Term) {
		for ctx.Err() == nil {
			err := work(ctx, t.FencingToken)
			if err != nil {
				locker.Logger().WarnContext(ctx, "work of the leader failed", "err", err)
				pause(ctx, time.Second)
			}
		}
	}))
}

// pause returns after a time, or when ctx has ended.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
