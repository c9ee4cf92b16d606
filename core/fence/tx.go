package fence

import (
	"context"
	"database/sql"
)

// A Tx is an open transaction. [SQL] makes one of database/sql. A type of your own makes one of another library; the
// package document has that for pgx. A *sql.DB or a connection is no Tx: outside of a transaction, the database
// would commit a check before the effect that it protects.
type Tx interface {
	// Exec runs a statement, and returns the number of rows that it has changed.
	Exec(ctx context.Context, query string, args ...any) (affected int64, err error)
	// QueryRow runs a query that returns at most one row.
	QueryRow(ctx context.Context, query string, args ...any) Row
}

// A Row is the result of a query. If there is no row, the error of Scan matches [sql.ErrNoRows].
type Row interface {
	Scan(dest ...any) error
}

// SQL returns the Tx of a transaction of database/sql.
func SQL(tx *sql.Tx) Tx {
	if tx == nil {
		return nil
	}
	return sqlTx{tx}
}

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t sqlTx) QueryRow(ctx context.Context, query string, args ...any) Row {
	return t.tx.QueryRowContext(ctx, query, args...)
}
