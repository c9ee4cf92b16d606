package databases

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/lockkit/lockkit/core/fence"
)

// benchmarks runs f on each database that is here, under a lease and as work of its own for each call.
func benchmarks(t *testing.B, f func(t *testing.B, b *bank, ctx context.Context)) {
	for _, on := range backends {
		if on.dialect != fence.SQLite && !hasServers() {
			continue
		}
		t.Run(on.name, func(t *testing.B) {
			b := newBank(t, on)
			b.must(b.locks.Do(t.Context(), "account", func(ctx context.Context) error {
				f(t, b, ctx)
				return nil
			}))
		})
	}
}

// transactions measures transactions that call first and then book an effect.
func transactions(t *testing.B, b *bank, ctx context.Context, name string, first func(ctx context.Context, tx *sql.Tx) error) {
	n := 0
	t.Run(name, func(t *testing.B) {
		for t.Loop() {
			n++
			work := b.locks.WithWork(ctx, name, fmt.Sprint(n))
			tx, err := b.db.BeginTx(ctx, nil)
			b.must(err)
			if first != nil {
				b.must(first(work, tx))
			}
			_, err = booking(ctx, tx)
			b.must(err)
			b.must(tx.Commit())
		}
	})
}

// What a check costs beside the same transaction without it. With LOCKKIT_FSYNC=on, commits are written to the disk.
func BenchmarkCheck(t *testing.B) {
	benchmarks(t, func(t *testing.B, b *bank, ctx context.Context) {
		transactions(t, b, ctx, "without", nil)
		transactions(t, b, ctx, "checked", func(ctx context.Context, tx *sql.Tx) error {
			return b.store.Check(ctx, fence.SQL(tx))
		})
	})
}

// What a record of the work costs beside a row that is inserted by hand.
func BenchmarkOnce(t *testing.B) {
	benchmarks(t, func(t *testing.B, b *bank, ctx context.Context) {
		b.exec("CREATE TABLE done (id VARCHAR(200) PRIMARY KEY)")
		n := 0
		transactions(t, b, ctx, "by hand", func(ctx context.Context, tx *sql.Tx) error {
			n++
			_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO done VALUES ('payment %d')", n))
			return err
		})
		transactions(t, b, ctx, "once", func(ctx context.Context, tx *sql.Tx) error {
			return b.store.Once(ctx, fence.SQL(tx))
		})
	})
}
