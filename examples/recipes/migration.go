package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Migrate runs the migration of a version on one replica of a deploy. On the others it returns when that one has
// succeeded. If it has failed, or its replica has died, the next replica tries. Call it in each replica before the
// server listens.
//
// Migrate must be a migration that may run twice: see docs/recipes.md.
func Migrate(ctx context.Context, locker *core.Locker, version string, migrate func(ctx context.Context) error) error {
	err := locker.Once(ctx, core.Key("migration", version), migrate, core.Retention(365*24*time.Hour))
	if errors.Is(err, core.ErrDone) {
		return nil // another replica has migrated
	}
	return err
}
