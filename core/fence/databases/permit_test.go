package databases

import (
	"context"
	"database/sql"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/core/semaphore"
)

// writeUnder writes in a transaction that begins with the check of a permit.
func (b *bank) writeUnder(permit *semaphore.Permit) error {
	tx := b.begin(sql.LevelDefault)
	defer tx.Rollback()
	if err := b.store.CheckPermit(b.Context(), fence.SQL(tx), permit); err != nil {
		return err
	}
	return tx.Commit()
}

// permits returns n permits of a semaphore of k, held at once, and releases them.
func (b *bank) permits(key string, k, n int) (all []*semaphore.Permit) {
	b.Helper()
	limit := must(semaphore.New(b.locks.Locker, k))
	for range n {
		all = append(all, must(limit.Acquire(b.Context(), key)))
	}
	for _, permit := range all {
		b.must(permit.Release(b.Context()))
	}
	return all
}

// A later holder of the same slot makes a permit stale. A later holder of another slot does not.
func TestStalePermit(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		earlier, later := b.permits("api", 2, 2), b.permits("api", 2, 2)
		b.must(b.writeUnder(earlier[0]))
		b.must(b.writeUnder(earlier[1]))
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 2)

		for _, permit := range later[:1] {
			b.must(b.writeUnder(permit))
			for _, old := range earlier {
				err := b.writeUnder(old)
				if old.Slot() == permit.Slot() {
					b.wantErr(err, fence.ErrStale, core.ErrLost)
				} else {
					b.must(err)
				}
			}
		}
	})
}

// Slot 0 is the key: a later lease makes its permit stale, and a later permit makes the lease stale.
func TestSlotZeroHasTheRowOfTheKey(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		lease := b.leases("account", 1)[0]
		permit := b.permits("account", 1, 1)[0]
		b.must(b.write(lease))
		b.must(b.writeUnder(permit))
		b.wantErr(b.write(lease), fence.ErrStale)

		later := b.leases("account", 1)[0]
		b.must(b.write(later))
		b.wantErr(b.writeUnder(permit), fence.ErrStale)
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 1)
	})
}

// Check under a permit says what to call, and so does CheckPermit without one.
func TestCheckUnderPermit(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		limit := must(semaphore.New(b.locks.Locker, 3))
		tx := b.begin(sql.LevelDefault)
		b.must(limit.Do(t.Context(), "api", func(ctx context.Context) error {
			err := b.store.Check(ctx, fence.SQL(tx))
			b.wantErr(err, core.ErrInvalid)
			b.wantSaid(err, "CheckPermit", "semaphore.FromContext")
			return nil
		}))
		err := b.store.CheckPermit(t.Context(), fence.SQL(tx), nil)
		b.wantErr(err, core.ErrInvalid)
		b.wantSaid(err, "was not made by")
		b.must(tx.Rollback())
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", 0)
	})
}
