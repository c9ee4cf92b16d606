package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Migrate runs the migration of a version on one replica of a deploy. On the other replicas, it returns when the
// migration has succeeded. If the migration fails, or its replica dies, the next replica tries. Each replica calls
// Migrate before its server listens. The migration must be one that may run twice: see docs/recipes.md.
func Migrate(ctx context.Context, locker *core.Locker, version string, migrate func(ctx context.Context) error) error {
	err := locker.Once(ctx, core.Key("migration", version), migrate, core.Retention(365*24*time.Hour))
	if errors.Is(err, core.ErrDone) {
		return nil // another replica has migrated
	}
	return err
}
