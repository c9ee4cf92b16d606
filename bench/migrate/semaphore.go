package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
)

func semaphoreNew(locker *core.Locker) (*semaphore.Semaphore, error) {
	limit, err := semaphore.New(locker, 3)
	if err != nil {
		return nil, err
	}
	return limit, nil
}

func semaphoreAfter(ctx context.Context, limit *semaphore.Semaphore) error {
	return limit.Do(ctx, "payments-api", func(ctx context.Context) error {
		return pay(ctx, 42) // for as long as it takes; ctx ends if the permit is lost
	}, core.MaxWait(5*time.Second))
}

func semaphorePermitAfter(ctx context.Context, limit *semaphore.Semaphore) error {
	permit, err := limit.TryAcquire(ctx, "payments-api") // Acquire waits
	if errors.Is(err, core.ErrHeld) {
		return errBusy // three others hold it
	}
	if err != nil {
		return err
	}
	defer permit.Release(ctx) // works with a ctx that has ended
	return pay(permit.Context(), 42)
}
