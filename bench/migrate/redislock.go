package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

func redislockBefore(ctx context.Context, client *redis.Client) error {
	locks := redislock.New(client)
	lock, err := locks.Obtain(ctx, "invoice:42", 10*time.Second, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	})
	if errors.Is(err, redislock.ErrNotObtained) {
		return errBusy // after 10s, the TTL, unless ctx ends before
	}
	if err != nil {
		return err
	}
	defer lock.Release(context.WithoutCancel(ctx))
	return pay(ctx, 42) // must be over within 10s, or call lock.Refresh
}

func redislockAfter(ctx context.Context, locker *core.Locker) error {
	err := locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		return pay(ctx, 42)
	}, core.MaxWait(10*time.Second))
	if errors.Is(err, core.ErrHeld) {
		return errBusy
	}
	return err
}

func redislockBoth(ctx context.Context, locker *core.Locker, locks *redislock.Client) error {
	return locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		lock, err := locks.Obtain(ctx, "invoice:42", 10*time.Second, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
		})
		if err != nil {
			return err
		}
		defer lock.Release(context.WithoutCancel(ctx))
		return pay(ctx, 42)
	})
}
