package fence_test

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
)

var (
	ctx    = context.Background()
	db     *sql.DB
	locker *core.Locker
)

func book(ctx context.Context, tx *sql.Tx, invoice string) ([]byte, error) {
	_, err := tx.ExecContext(ctx, "INSERT INTO payments (invoice) VALUES ($1)", invoice)
	return []byte("booked"), err
}

// The payment is booked once, however often the function runs: the effect and the record of the work are committed
// together.
func ExampleStore_Do() {
	store := fence.New(fence.PostgreSQL) // its tables: lockctl fence-schema postgresql

	pay := func(ctx context.Context, invoice string) ([]byte, error) {
		receipt, err := store.Do(ctx, db, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			return book(ctx, tx, invoice)
		})
		if errors.Is(err, core.ErrDone) {
			return receipt, nil // of the try that was committed
		}
		return receipt, err
	}

	_, _ = locker.OnceResult(ctx, core.Key("invoice", "42"), func(ctx context.Context) ([]byte, error) { return pay(ctx, "42") })
}

// A transaction of one's own, with the parts of Do at its beginning.
func ExampleStore_Once() {
	store := fence.New(fence.PostgreSQL)

	pay := func(ctx context.Context, invoice string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after Commit, this does nothing

		err = store.Check(ctx, fence.SQL(tx)) // first: refuses a holder that is stale
		if err != nil {
			return err
		}
		err = store.Once(ctx, fence.SQL(tx)) // core.ErrDone: an earlier transaction has done this work
		if errors.Is(err, core.ErrDone) {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = book(ctx, tx, invoice)
		if err != nil {
			return err
		}
		return tx.Commit()
	}

	_ = locker.Once(ctx, core.Key("invoice", "42"), func(ctx context.Context) error { return pay(ctx, "42") })
}
