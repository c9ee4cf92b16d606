package migrate

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/lockkit/lockkit/core"
)

func rueidislockOpen(addr string) (rueidislock.Locker, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	return locks, err
}

func rueidislockBefore(ctx context.Context, locks rueidislock.Locker) error {
	ctx, cancel, err := locks.WithContext(ctx, "invoice:42")
	if err != nil {
		return err
	}
	defer cancel()
	return pay(ctx, 42) // ctx ends if the lock is lost
}

func rueidislockAfter(ctx context.Context, locker *core.Locker) error {
	lease, err := locker.Acquire(ctx, core.Key("invoice", "42"))
	if err != nil {
		return err
	}
	defer lease.Release(ctx) // works with a ctx that has ended
	return pay(lease.Context(), 42)
}

func rueidislockBoth(ctx context.Context, locker *core.Locker, locks rueidislock.Locker) error {
	return locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		ctx, cancel, err := locks.WithContext(ctx, "invoice:42") // ends with either lock
		if err != nil {
			return err
		}
		defer cancel()
		return pay(ctx, 42)
	})
}
