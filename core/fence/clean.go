package fence

import (
	"context"
	"database/sql"
)

// Clean deletes the records of work after their retention, and the rows of keys more than 31 days after their last
// Check, by the clock of the database. It returns how many rows it has deleted. Call it about once a day, such as in
// a job of cronlock. It deletes one row at a time, so it does not keep others waiting; it goes on until all are
// deleted, ctx ends or a statement fails, and it may be repeated.
func (s *Store) Clean(ctx context.Context, db *sql.DB) (deleted int64, err error) {
	if err := s.checkUse(ctx); err != nil {
		return 0, err
	}
	if db == nil {
		return 0, invalid("the *sql.DB is nil")
	}

	tokens, err := s.cleanTable(ctx, db, s.statements.staleTokens, s.statements.deleteToken)
	if err != nil {
		return tokens, err
	}

	records, err := s.cleanTable(ctx, db, s.statements.expiredRecords, s.statements.deleteRecord)
	return tokens + records, err
}

// cleanTable deletes the rows that find returns. Each deletion checks again, because the row may have been used
// since.
func (s *Store) cleanTable(ctx context.Context, db *sql.DB, find, remove statement) (deleted int64, err error) {
	for {
		ids, err := s.rowsOf(ctx, db, find)
		if err != nil {
			return deleted, s.explain(ctx, "clean", err)
		}

		before := deleted
		for _, id := range ids {
			n, err := s.removeRow(ctx, db, remove, id)
			if err != nil {
				return deleted, s.explain(ctx, "clean", err)
			}
			deleted += n
		}

		if deleted == before { // nothing is left, or all of it is in use again
			return deleted, nil
		}
	}
}

// removeRow deletes a row, in a transaction: with autocommit=0 in a DSN for MariaDB, a statement alone is not committed.
func (s *Store) removeRow(ctx context.Context, db *sql.DB, remove statement, id []byte) (deleted int64, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit

	query, args := remove.with(params{"id": id})
	deleted, err = SQL(tx).Exec(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return deleted, tx.Commit()
}

// rowsOf returns the ids that a query returns.
func (s *Store) rowsOf(ctx context.Context, db *sql.DB, find statement) (ids [][]byte, err error) {
	query, args := find.with(nil)
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}

		ids = append(ids, id)
	}
	return ids, rows.Err()
}
