package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence"
)

// This file tests the recipe for a column of the user's own, in place of the tables of package fence. docs/recipes.md
// has its code and statements.

// A column is a table with a column for the fencing token, and its statements in one dialect.
type column struct {
	schema string
	update string // writes a row unless it has a greater token
	token  string // returns the token of a row as it is, and not as a snapshot has it
	upsert string // inserts or writes a row; returns the token that the row has, or nothing if it was not written
}

var columns = map[fence.Dialect]column{
	fence.PostgreSQL: {
		schema: `CREATE TABLE purse (id bigint PRIMARY KEY, balance bigint NOT NULL, fence bigint NOT NULL DEFAULT 0)`,
		update: `UPDATE purse SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $4`,
		token:  `SELECT fence FROM purse WHERE id = $1 FOR UPDATE`,
		upsert: `INSERT INTO purse (id, balance, fence) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
WHERE purse.fence <= excluded.fence RETURNING fence`,
	},
	fence.MariaDB: {
		schema: `CREATE TABLE purse (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0) ENGINE=InnoDB`,
		update: `UPDATE purse SET balance = ?, fence = ? WHERE id = ? AND fence <= ?`,
		token:  `SELECT fence FROM purse WHERE id = ? FOR UPDATE`,
		upsert: `INSERT INTO purse (id, balance, fence) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE balance = IF(purse.fence <= VALUES(fence), VALUES(balance), purse.balance),
fence = GREATEST(purse.fence, VALUES(fence)) RETURNING fence`,
	},
	fence.SQLite: {
		schema: `CREATE TABLE purse (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0)`,
		update: `UPDATE purse SET balance = ?, fence = ? WHERE id = ? AND fence <= ?`,
		token:  `SELECT fence FROM purse WHERE id = ?`,
		upsert: `INSERT INTO purse (id, balance, fence) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
WHERE purse.fence <= excluded.fence RETURNING fence`,
	},
}

var errNoPurse = errors.New("there is no such row")

// set writes a row under a fencing token.
func (c column) set(ctx context.Context, tx *sql.Tx, id, balance int64, lease *core.Lease) error {
	token := lease.FencingToken()
	result, err := tx.ExecContext(ctx, c.update, balance, token, id, token)
	if err != nil {
		return err
	}
	affected, err := result.RowsAffected()
	if err != nil || affected == 1 {
		return err
	}

	// MariaDB does not count a row that had these values before, unless the DSN has clientFoundRows=true.
	var seen uint64
	err = tx.QueryRowContext(ctx, c.token, id).Scan(&seen)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errNoPurse
	case err != nil:
		return err
	case seen > token:
		return stale(lease, seen)
	}
	return nil
}

// put inserts or writes a row under a fencing token.
func (c column) put(ctx context.Context, tx *sql.Tx, id, balance int64, lease *core.Lease) error {
	token := lease.FencingToken()
	var seen uint64
	err := tx.QueryRowContext(ctx, c.upsert, id, balance, token).Scan(&seen)
	switch {
	case errors.Is(err, sql.ErrNoRows): // PostgreSQL and SQLite have not written the row
		return stale(lease, seen)
	case err != nil:
		return err
	case seen > token: // MariaDB returns the row as it was
		return stale(lease, seen)
	}
	return nil
}

// stale returns an error that the adapters take for a loss.
func stale(lease *core.Lease, seen uint64) error {
	return &core.OpError{
		Op:     core.OpCheck,
		Key:    lease.Key(),
		Err:    core.ErrLost,
		Detail: fmt.Errorf("%w: the row has token %d, this lease has %d", core.ErrLost, seen, lease.FencingToken()),
		Reason: core.LossStale,
	}
}

// eachPurse runs f on each database, with a table that has a row 42, and each isolation level.
func eachPurse(t *testing.T, f func(b *bank, try func(func(c column, tx *sql.Tx) error) error)) {
	t.Helper()
	each(t, func(_ *testing.T, b *bank) {
		c := columns[b.dialect]
		b.exec(c.schema)
		for _, level := range b.levels {
			b.exec("DELETE FROM purse")
			b.exec("INSERT INTO purse (id, balance) VALUES (42, 100)")
			f(b, func(work func(c column, tx *sql.Tx) error) error {
				tx := b.begin(level)
				return end(tx, work(c, tx))
			})
		}
	})
}

// A holder that is paused until a later one has written changes no row, and learns it. The later holder can write again,
// even the same values, for which MariaDB counts no row.
func TestColumnOfOnesOwn(t *testing.T) {
	eachPurse(t, func(b *bank, try func(func(column, *sql.Tx) error) error) {
		set := func(lease *core.Lease, id, balance int64) error {
			return try(func(c column, tx *sql.Tx) error { return c.set(b.Context(), tx, id, balance, lease) })
		}
		leases := b.leases("purse", 2)
		b.must(set(leases[0], 42, 90))
		b.must(set(leases[0], 42, 90))
		b.must(set(leases[1], 42, 80))
		b.must(set(leases[1], 42, 80))

		err := set(leases[0], 42, 70)
		b.wantErr(err, core.ErrLost)
		b.wantSaid(err, fmt.Sprint(leases[1].FencingToken()))
		b.wantErr(set(leases[1], 43, 1), errNoPurse)
		b.wantNumber("SELECT balance FROM purse", 80)
		b.wantNumber("SELECT COUNT(*) FROM purse", 1)
	})
}

// A row that may not exist is inserted or written in one statement.
func TestColumnOfARowThatMayNotExist(t *testing.T) {
	eachPurse(t, func(b *bank, try func(func(column, *sql.Tx) error) error) {
		put := func(lease *core.Lease, id, balance int64) error {
			return try(func(c column, tx *sql.Tx) error { return c.put(b.Context(), tx, id, balance, lease) })
		}
		leases := b.leases("purse", 2)
		for _, id := range []int64{42, 43} {
			b.must(put(leases[0], id, 90))
			b.must(put(leases[0], id, 90))
			b.must(put(leases[1], id, 80))
			b.must(put(leases[1], id, 80))
			b.wantErr(put(leases[0], id, 70), core.ErrLost)
		}
		b.wantNumber("SELECT SUM(balance) FROM purse", 160)
	})
}

// The number of affected rows alone does not tell a stale holder from one that writes the same values again: that is
// what clientFoundRows of MariaDB changes.
func TestAffectedRows(t *testing.T) {
	eachPurse(t, func(b *bank, try func(func(column, *sql.Tx) error) error) {
		leases := b.leases("purse", 2)
		affected := func(lease *core.Lease) (n int64) {
			b.must(try(func(c column, tx *sql.Tx) error {
				token := lease.FencingToken()
				result, err := tx.Exec(c.update, 80, token, 42, token)
				if err == nil {
					n, err = result.RowsAffected()
				}
				return err
			}))
			return n
		}
		want := func(got, want int64) {
			b.Helper()
			if got != want {
				b.Errorf("%d rows, want %d", got, want)
			}
		}
		again := int64(1)
		if b.name == "mariadb" {
			again = 0
		}
		want(affected(leases[1]), 1)
		want(affected(leases[1]), again)
		want(affected(leases[0]), 0)
	})
}

// In both orders, a paused holder loses no write of a later one: if its transaction is open, the later one waits for it.
func TestColumnWithAnOpenTransaction(t *testing.T) {
	each(t, func(t *testing.T, b *bank) {
		c := columns[b.dialect]
		b.exec(c.schema)
		for _, level := range b.levels {
			b.exec("DELETE FROM purse")
			b.exec("INSERT INTO purse (id, balance) VALUES (42, 100)")
			leases := b.leases("purse", 2)

			earlier := b.begin(level)
			b.must(c.set(t.Context(), earlier, 42, 90, leases[0]))
			written := make(chan error, 1)
			go func() {
				written <- b.whenPossible(level, func(tx *sql.Tx) error { return c.set(b.Context(), tx, 42, 80, leases[1]) })
			}()
			select {
			case err := <-written:
				t.Fatalf("%v: the later holder did not wait: %v", level, err)
			case <-time.After(100 * time.Millisecond):
			}
			b.must(earlier.Commit())
			b.must(<-written)
			b.wantNumber("SELECT balance FROM purse", 80)

			late := b.begin(level)
			b.wantErr(end(late, c.set(t.Context(), late, 42, 70, leases[0])), core.ErrLost)
			b.wantNumber("SELECT balance FROM purse", 80)
		}
	})
}

// whenPossible repeats a transaction that the level makes fail.
func (b *bank) whenPossible(level sql.IsolationLevel, work func(tx *sql.Tx) error) (err error) {
	for range 10 {
		var tx *sql.Tx
		tx, err = b.db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
		if err != nil {
			return err
		}
		err = end(tx, work(tx))
		if err == nil || b.dialect != fence.PostgreSQL || level < sql.LevelRepeatableRead {
			return err
		}
	}
	return err
}
