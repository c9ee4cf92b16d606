// Package certmagic gives certmagic the locks of lockkit. Copy lock.go.
package certmagic

import (
	"context"

	"github.com/caddyserver/certmagic"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/named"
)

// A clusterStorage keeps certificates where another storage keeps them, and has lockkit's locks. Its locks have the names
// that certmagic gives them: storages that must not exclude each other need a Locker with a key prefix each.
type clusterStorage struct {
	certmagic.Storage
	locks *named.Locks
}

func newClusterStorage(storage certmagic.Storage, locker *core.Locker) (clusterStorage, error) {
	locks, err := named.New(locker)
	return clusterStorage{storage, locks}, err
}

func (s clusterStorage) Lock(ctx context.Context, name string) error { return s.locks.Lock(ctx, name) }
func (s clusterStorage) Unlock(ctx context.Context, name string) error {
	return s.locks.Unlock(ctx, name)
}
func (s clusterStorage) TryLock(ctx context.Context, name string) (bool, error) {
	return s.locks.TryLock(ctx, name)
}

var _ certmagic.TryLocker = clusterStorage{}
