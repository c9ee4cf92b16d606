// Package goose lets one process at a time migrate a database. Copy lock.go.
package goose

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3/lock"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/named"
)

// A migrationLock lets one process at a time migrate a database.
type migrationLock struct {
	locks *named.Locks
	key   string // one for each database
}

func newMigrationLock(locker *core.Locker, database string) (migrationLock, error) {
	locks, err := named.New(locker)
	return migrationLock{locks, core.Key("migrations", database)}, err
}

func (m migrationLock) Lock(ctx context.Context, _ *sql.DB) error { return m.locks.Lock(ctx, m.key) }
func (m migrationLock) Unlock(ctx context.Context, _ *sql.DB) error {
	return m.locks.Unlock(ctx, m.key)
}

var _ lock.Locker = migrationLock{}
