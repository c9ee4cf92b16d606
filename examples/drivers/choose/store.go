package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite"
)

// A store keeps a number for each key, and refuses who comes with a smaller fencing token than it has seen for the key.
// It is a file, which processes share, and knows nothing of locks.
type store struct{ db *sql.DB }

var errStale = errors.New("refused: somebody with a greater fencing token has written")

func openStore(file string) (*store, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS work (key TEXT PRIMARY KEY, value INTEGER NOT NULL, fence INTEGER NOT NULL)`)
	return &store{db}, err
}

func (s *store) read(ctx context.Context, key string) (value int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT value FROM work WHERE key = ?`, key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return value, err
}

// write compares with >=: a holder may write more than once, and then finds its own token.
func (s *store) write(ctx context.Context, key string, token uint64, value int) error {
	res, err := s.db.ExecContext(ctx, `INSERT INTO work (key, value, fence) VALUES (?, ?, ?)
		ON CONFLICT (key) DO UPDATE SET value = excluded.value, fence = excluded.fence WHERE excluded.fence >= fence`,
		key, value, int64(token))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errStale
}
