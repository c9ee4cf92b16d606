package databases

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/testutil"
)

// writeUnder writes in a transaction that begins with the check of a permit.
func (b *bank) writeUnder(permit *semaphore.Permit, level sql.IsolationLevel) error {
	tx := b.begin(level)
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
		testutil.Await(b, "released", func() bool { return permit.Release(b.Context()) == nil }) // late on a busy machine
	}
	return all
}

// A later holder of the same slot makes a permit stale. A later holder of another slot does not.
func TestStalePermit(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		for _, level := range b.levels {
			api := fmt.Sprint("api ", level)
			earlier, later := b.permits(api, 2, 2), b.permits(api, 2, 2)
			b.must(b.writeUnder(earlier[0], level))
			b.must(b.writeUnder(earlier[1], level))

			b.must(b.writeUnder(later[0], level))
			for _, old := range earlier {
				err := b.writeUnder(old, level)
				if old.Slot() == later[0].Slot() {
					b.wantErr(err, fence.ErrStale, core.ErrLost)
				} else {
					b.must(err)
				}
			}
		}
		b.wantNumber("SELECT COUNT(*) FROM lockkit_fence", int64(2*len(b.levels)))
	})
}

// The check of a later holder of a slot waits for the transaction of an earlier one, and not for that of another slot.
func TestPermitWaitsForItsSlot(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		if b.dialect == fence.SQLite {
			return // one transaction at a time writes, whatever it writes
		}
		earlier, later := b.permits("api", 2, 2), b.permits("api", 2, 2)
		if later[0].Slot() != earlier[0].Slot() {
			later[0], later[1] = later[1], later[0]
		}
		for _, permit := range earlier { // the rows exist: two inserts may deadlock
			b.must(b.writeUnder(permit, sql.LevelDefault))
		}

		tx := b.begin(sql.LevelDefault)
		b.must(b.store.CheckPermit(t.Context(), fence.SQL(tx), earlier[0]))
		written := make(chan error, 1)
		go func() { written <- b.writeUnder(later[0], sql.LevelReadCommitted) }()
		b.must(b.writeUnder(later[1], sql.LevelDefault))
		select {
		case err := <-written:
			t.Fatalf("the later holder did not wait: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		b.must(tx.Commit())
		b.must(<-written)
	})
}

// Slot 0 is the key: a later lease makes its permit stale, and a later permit makes the lease stale.
func TestSlotZeroHasTheRowOfTheKey(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		lease := b.leases("account", 1)[0]
		permit := b.permits("account", 1, 1)[0]
		b.must(b.write(lease))
		b.must(b.writeUnder(permit, sql.LevelDefault))
		b.wantErr(b.write(lease), fence.ErrStale)

		later := b.leases("account", 1)[0]
		b.must(b.write(later))
		b.wantErr(b.writeUnder(permit, sql.LevelDefault), fence.ErrStale)
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
