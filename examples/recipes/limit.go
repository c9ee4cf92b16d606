package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
)

var errBusy = errors.New("busy")

// callAPI calls an API that allows as many calls at a time as limit has permits.
func callAPI(ctx context.Context, limit *semaphore.Semaphore, call func(ctx context.Context) error) error {
	err := limit.Do(ctx, "payments-api", func(ctx context.Context) error {
		return call(ctx)
	}, core.MaxWait(5*time.Second))
	if errors.Is(err, core.ErrHeld) {
		return errBusy // three others were calling all the time
	}
	return err
}

// importOnce runs an import of a customer once, beside at most one other import of that customer.
func importOnce(
	ctx context.Context, locker *core.Locker, imports *semaphore.Semaphore, customer, id string,
	load func(ctx context.Context, customer string, slot int) error,
) error {
	return locker.Once(ctx, core.Key("import", id), func(ctx context.Context) error {
		return imports.Do(ctx, core.Key("imports", customer), func(ctx context.Context) error {
			permit, _ := semaphore.FromContext(ctx)
			return load(ctx, customer, permit.Slot()) // into table 0 or 1
		})
	})
}
