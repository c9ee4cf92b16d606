package fence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// An ending is how a transaction has ended.
type ending uint8

const (
	committed  ending = iota
	refused           // not committed, and a repetition would end in the same way
	rolledBack        // not committed, because of other transactions; it can be repeated
	uncertain         // unknown, because the connection or the context ended in COMMIT
)

// transact runs work in a transaction, and commits it. The connection is back in its pool when transact returns.
func (s *Store) transact(ctx context.Context, db *sql.DB, work func(tx *sql.Tx) error) (end ending, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return refused, s.explain(ctx, "connect", err)
	}
	defer conn.Close()

	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return endingOf(err), s.explain(ctx, "begin", err)
	}

	isEnding := false
	defer func() {
		if !isEnding { // work panicked, or ended the goroutine
			_ = tx.Rollback()
		}
	}()

	err = work(tx)
	isEnding = true
	if err != nil {
		// If the rollback fails, the connection is broken, and the database rolls back.
		_ = tx.Rollback()
		return endingOf(err), err
	}

	err = tx.Commit()
	if err == nil {
		return committed, nil
	}
	return s.endOfCommit(ctx, conn, err), s.explain(ctx, "commit", err)
}

// endingOf returns the ending of a transaction that was not sent a COMMIT, and failed with err.
func endingOf(err error) ending {
	if kindOf(err) == kindRolledBack {
		return rolledBack
	}
	return refused
}

// endOfCommit returns the ending of a transaction, given the error of its COMMIT.
func (s *Store) endOfCommit(ctx context.Context, conn *sql.Conn, err error) ending {
	if s.dialect == SQLite {
		// A failed COMMIT may leave the transaction open, in a connection that goes back to its pool. If it can be
		// rolled back, it was not committed.
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		defer stop()
		if _, rollbackErr := conn.ExecContext(ctx, "ROLLBACK"); rollbackErr == nil {
			return endingOf(err)
		}
	}

	switch kindOf(err) { //nolint:exhaustive // any other kind tells nothing of the transaction
	case kindRolledBack:
		return rolledBack
	case kindRefused:
		return refused
	}
	if errors.Is(err, sql.ErrTxDone) { // database/sql had rolled it back, because ctx had ended
		return refused
	}

	// The connection may still be in the transaction, so it is not used again.
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	return uncertain
}

// settleTimeout is how long Do tries to find out whether a transaction was committed.
const settleTimeout = 10 * time.Second

// settle finds out whether the transaction was committed that has recorded run. Its COMMIT failed with commitErr. It
// does not need a live lease, so it goes on after ctx has ended.
//
// It records the work itself, in a transaction that it rolls back. That waits until the transaction in question has
// ended, even if the server has not noticed yet that its connection is gone.
func (s *Store) settle(ctx context.Context, db *sql.DB, run []byte, commitErr error) (ending, error) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer stop()

	for n := 1; ; n++ {
		found, err := s.find(ctx, db)

		op, isOpError := errors.AsType[*core.OpError](err)
		switch {
		case err == nil: // there was no record
			return rolledBack, commitErr
		case isOpError && string(found) == string(run):
			return committed, nil
		case isOpError: // another transaction has done the work
			return refused, op
		}

		if !pause(ctx, n) {
			return uncertain, unknown(commitErr)
		}
	}
}

// find looks for the record of the work of ctx. It returns the run of the record, and the error of Once.
func (s *Store) find(ctx context.Context, db *sql.DB) (run []byte, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()

	return s.once(ctx, SQL(tx))
}

// unknown returns the error of a transaction that may have been committed. It has only the text of the error of
// COMMIT, which may match the error of a context or a loss.
func unknown(commitErr error) error {
	return fmt.Errorf("%w: %v", ErrUnknown, commitErr) //nolint:errorlint // only its text
}
