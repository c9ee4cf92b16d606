package migrate

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

func redsyncBefore(ctx context.Context, client redis.UniversalClient) error {
	rs := redsync.New(goredis.NewPool(client))
	mutex := rs.NewMutex("invoice:42", redsync.WithExpiry(8*time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err // it is held, ctx has ended, or Redis is down
	}
	defer mutex.UnlockContext(context.WithoutCancel(ctx))
	return pay(ctx, 42) // must be over within 8s, or extend the lock
}

func redsyncAfter(ctx context.Context, locker *core.Locker) error {
	return locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		return pay(ctx, 42) // for as long as it takes; ctx ends if the lock is lost
	})
}

func redsyncNested(ctx context.Context, rs *redsync.Redsync) error {
	for _, key := range []string{"account:1", "account:2"} { // who transfers the other way must sort them alike
		mutex := rs.NewMutex(key, redsync.WithExpiry(8*time.Second))
		if err := mutex.LockContext(ctx); err != nil {
			return err
		}
		defer mutex.UnlockContext(context.WithoutCancel(ctx))
	}
	return pay(ctx, 42) // must be over within 8s of the first lock
}

func redsyncNestedAfter(ctx context.Context, locker *core.Locker) error {
	return locker.DoAll(ctx, []string{core.Key("account", "2"), core.Key("account", "1")}, func(ctx context.Context) error {
		return pay(ctx, 42) // ctx ends if either lock is lost
	})
}

func redsyncBoth(ctx context.Context, locker *core.Locker, rs *redsync.Redsync) error {
	return locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		mutex := rs.NewMutex("invoice:42", redsync.WithExpiry(8*time.Second), redsync.WithTries(100))
		if err := mutex.LockContext(ctx); err != nil {
			return err
		}
		defer mutex.UnlockContext(context.WithoutCancel(ctx))
		return pay(ctx, 42)
	})
}
