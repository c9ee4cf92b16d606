package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
)

// transfer does the work of an id once, in a transaction that checks the leases on both keys. docs/recipes.md shows it.
func transfer(
	ctx context.Context, locker *core.Locker, store *fence.Store, db *sql.DB,
	id, from, to string, move func(ctx context.Context, tx *sql.Tx) error,
) error {
	return locker.Once(ctx, core.Key("transfer", id), func(ctx context.Context) error { // names the work
		return locker.DoAll(ctx, []string{from, to}, func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() // after Commit, this does nothing
			for _, key := range []string{min(from, to), max(from, to)} {
				lease, _ := locker.Holding(ctx, key)
				err := store.CheckLease(ctx, fence.SQL(tx), lease)
				if err != nil {
					return err
				}
			}
			err = store.Once(ctx, fence.SQL(tx))
			if errors.Is(err, core.ErrDone) {
				return nil // an earlier try has moved the money
			}
			if err != nil {
				return err
			}
			err = move(ctx, tx)
			if err != nil {
				return err
			}
			return tx.Commit()
		})
	})
}

// Transfers in both directions between two accounts are done once each, even if each is tried again after the record of
// lockkit was dropped, and a holder whose token is stale on either account changes neither.
func TestTransferOfTwoAccounts(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		b.exec("CREATE TABLE wallet (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)")
		b.exec("INSERT INTO wallet VALUES (1, 100)")
		b.exec("INSERT INTO wallet VALUES (2, 100)")
		one, two := core.Key("account", "1"), core.Key("account", "2")

		amount := func(n int) func(context.Context, *sql.Tx) error {
			return func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE wallet SET balance = balance - %d WHERE id = 1", n))
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE wallet SET balance = balance + %d WHERE id = 2", n))
				return err
			}
		}
		transfers := func(locker *core.Locker, prefix string) {
			var all sync.WaitGroup
			for i := range 6 {
				from, to, n := one, two, 10
				if i%2 == 1 {
					from, to, n = two, one, -3
				}
				all.Go(func() {
					err := transfer(t.Context(), locker, b.store, b.db, fmt.Sprint(prefix, i), from, to, amount(n))
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		balances := func(first, second int64) {
			t.Helper()
			b.wantNumber("SELECT balance FROM wallet WHERE id = 1", first)
			b.wantNumber("SELECT balance FROM wallet WHERE id = 2", second)
		}

		transfers(b.locks.Locker, "a")
		balances(79, 121)
		for _, node := range b.locks.Nodes {
			node.Flush() // the records of lockkit are gone, and those of the database are not
		}
		transfers(b.locks.Replica().Locker, "a")
		balances(79, 121)

		stale := b.leases(two, 1)[0]
		transfers(b.locks.Locker, "b")
		balances(58, 142)
		err := b.locks.Do(t.Context(), one, func(ctx context.Context) error {
			tx := b.begin(sql.LevelDefault)
			defer tx.Rollback()
			b.must(b.store.Check(ctx, fence.SQL(tx)))
			b.must(amount(50)(ctx, tx))
			return b.store.CheckLease(ctx, fence.SQL(tx), stale)
		})
		b.wantErr(err, fence.ErrStale)
		balances(58, 142)
	})
}
