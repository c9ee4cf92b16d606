package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgresWay locks a row, for as long as a transaction is open: one connection for each holder.
//
// If the work is in the same database, do it in that transaction: it is undone with the lock, and needs no token. For
// work elsewhere the token is a column of the row, raised and committed before the row is locked: what is raised in the
// same transaction, or drawn from a sequence there, can be given out again after a rollback or a crash of the server.
// Nobody tells the work that the connection is lost: the commit fails.
type postgresWay struct{ pool *pgxpool.Pool }

const (
	// The lock is for replicas that start together: IF NOT EXISTS alone fails where two do it at once.
	pgSchema = `SELECT pg_advisory_xact_lock(hashtext('locks'));
		CREATE TABLE IF NOT EXISTS locks (key text PRIMARY KEY, token bigint NOT NULL DEFAULT 0)`
	pgInsert = `INSERT INTO locks (key) VALUES ($1) ON CONFLICT DO NOTHING` // FOR UPDATE locks no row that is not there
	pgRaise  = `WITH free AS (SELECT key FROM locks WHERE key = $1 FOR UPDATE NOWAIT)
		UPDATE locks SET token = token + 1 FROM free WHERE locks.key = free.key RETURNING token`
	pgLock = `SELECT token FROM locks WHERE key = $1 FOR UPDATE NOWAIT`
)

var errRowHeld = errors.New("postgres: the row is locked")

// openPostgres has the server end holders that are silent for ttl: without that, one that hangs keeps its row.
func openPostgres(ctx context.Context, url string, ttl time.Duration) (*postgresWay, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(ttl.Milliseconds(), 10)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, pgSchema); err != nil {
		pool.Close()
		return nil, err
	}
	return &postgresWay{pool}, nil
}

func (w *postgresWay) Do(ctx context.Context, key string, work func(ctx context.Context, token uint64) error) error {
	for {
		token, err := w.raise(ctx, key)
		if err == nil {
			err = w.hold(ctx, key, token, work)
		}
		if !errors.Is(err, errRowHeld) {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// raise makes a token and commits it, unless somebody holds the row.
func (w *postgresWay) raise(ctx context.Context, key string) (token int64, err error) {
	err = w.pool.QueryRow(ctx, pgRaise, key).Scan(&token)
	if errors.Is(err, pgx.ErrNoRows) {
		_, err = w.pool.Exec(ctx, pgInsert, key)
		return 0, errors.Join(err, errRowHeld)
	}
	return token, held(err)
}

// hold locks the row and works, unless somebody has come between and raised the token. It commits if work returns nil.
func (w *postgresWay) hold(ctx context.Context, key string, token int64, work func(ctx context.Context, token uint64) error) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		var now int64
		if err := tx.QueryRow(ctx, pgLock, key).Scan(&now); err != nil {
			return held(err)
		}
		if now != token {
			return errRowHeld
		}
		return work(ctx, uint64(token))
	})
}

// held tells a row that somebody else has locked from other errors.
func held(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" { // lock_not_available
		return errRowHeld
	}
	return err
}

func (w *postgresWay) Close(context.Context) error { w.pool.Close(); return nil }
