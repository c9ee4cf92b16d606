package recipes

import (
	"context"

	"github.com/lockkit/lockkit/core"
)

// InPieces does long work under a key, and lets waiters have the key between two pieces.
func InPieces(
	ctx context.Context, locker *core.Locker, key string,
	pieces []string, work func(ctx context.Context, piece string) error,
) error {
	for _, piece := range pieces {
		err := locker.Do(ctx, key, func(ctx context.Context) error { return work(ctx, piece) })
		if err != nil {
			return err
		}
	}
	return nil
}
