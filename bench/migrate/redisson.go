package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
)

func redissonAfter(ctx context.Context, locker *core.Locker) error {
	err := locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		return pay(ctx, 42)
	}, core.MaxWait(5*time.Second))
	if errors.Is(err, core.ErrHeld) {
		return errBusy
	}
	return err
}

func redissonFencedAfter(ctx context.Context, locker *core.Locker, save func(ctx context.Context, token uint64) error) error {
	return locker.Do(ctx, core.Key("invoice", "42"), func(ctx context.Context) error {
		lease, _ := core.FromContext(ctx)
		return save(ctx, lease.FencingToken()) // UPDATE invoice SET paid = true, fence = $1 WHERE id = $2 AND fence <= $1
	})
}

func redissonMultiAfter(ctx context.Context, locker *core.Locker) error {
	leases, err := locker.AcquireAll(ctx, []string{core.Key("account", "1"), core.Key("account", "2")}, core.MaxWait(5*time.Second))
	if errors.Is(err, core.ErrHeld) {
		return errBusy // it holds neither
	}
	if err != nil {
		return err
	}
	defer leases.Release(ctx)
	return pay(leases.Context(), 42)
}

func waitAfter(ctx context.Context, locker *core.Locker) (*core.Lease, error) {
	lease, err := locker.Acquire(ctx, core.Key("invoice", "42"), core.MaxWait(5*time.Second)) // not context.WithTimeout
	return lease, err
}

func detachedAfter(ctx context.Context, locker *core.Locker) (*core.Lease, error) {
	lease, err := locker.Acquire(ctx, core.Key("invoice", "42"), core.Detached(true), core.MaxHold(time.Minute)) // ctx bounds the wait
	return lease, err
}
