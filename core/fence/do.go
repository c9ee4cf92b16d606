package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence/internal/holder"
)

// maxTries is how many transactions Do and DoChecked begin for one call.
const maxTries = 10

// Do runs fn in a transaction, exactly once for the work of ctx: it begins the transaction, calls [Store.Check] and
// [Store.Once], runs fn, stores its result as [Store.SetResult] does, and commits. fn must use only tx, and must not
// end it. It must return the errors of its statements. It may be called again, in another transaction, so it must
// have no effects elsewhere.
//
// An error of fn that matches core.ErrDone is about other work, or about a second record of the same work: Do has
// recorded this one, and the record was rolled back. So the error of Do has only its text then, and matches
// core.ErrInvalid.
//
// With a nil error, the transaction was committed, and Do returns the result of fn. If an earlier transaction has
// done the work, Do returns its result, and the error matches core.ErrDone. Any other error returns no result, and
// nothing was committed by this call, except with ErrUnknown.
//
// Do begins the transaction again, up to ten times in all and while ctx and the lease live, if it was rolled back
// because of other transactions: by a serialization failure, a deadlock or a lock wait that took too long. If the
// connection or ctx ends in COMMIT, Do asks the database for up to 10 s whether the work is done, and returns
// ErrUnknown if it cannot find out.
//
// ctx must have a lease and name the work; otherwise the error matches core.ErrInvalid, and nothing was sent.
func (s *Store) Do(
	ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) ([]byte, error),
) ([]byte, error) {
	if fn == nil {
		return nil, invalid("the function is nil")
	}
	innermost, err := s.checkDo(ctx, db)
	if err != nil {
		return nil, err
	}
	if _, err := workOf(ctx); err != nil {
		return nil, err
	}

	var result, run []byte
	work := func(tx *sql.Tx) (err error) {
		err = s.checkFirst(ctx, SQL(tx), innermost)
		if err != nil {
			return err
		}

		run, err = s.once(ctx, SQL(tx))
		if err != nil {
			return err
		}

		result, err = fn(ctx, tx)
		if err != nil {
			return notDone(err)
		}
		return s.SetResult(ctx, SQL(tx), result)
	}

	err = s.repeat(ctx, innermost, func() (ending, error) {
		end, err := s.transact(ctx, db, work)

		if end == uncertain {
			return s.settle(ctx, db, run, err)
		}
		return end, err
	})

	if err == nil {
		return result, nil
	}

	if op, ok := errors.AsType[*core.OpError](err); ok && op.Op == core.OpOnce {
		return op.Record.Result, err
	}
	return nil, err
}

// DoChecked runs fn in a transaction that begins with [Store.Check], and commits it. It is for effects that may
// happen again, but not after the effects of a later holder of the key. fn is called as by Do.
//
// The transaction is repeated as by Do, except when the connection or ctx ends in COMMIT: then the error matches
// ErrUnknown at once, because nothing in the database tells whether the transaction was committed. With any other
// error, nothing was committed.
func (s *Store) DoChecked(ctx context.Context, db *sql.DB, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if fn == nil {
		return invalid("the function is nil")
	}
	innermost, err := s.checkDo(ctx, db)
	if err != nil {
		return err
	}

	return s.repeat(ctx, innermost, func() (ending, error) {
		end, err := s.transact(ctx, db, func(tx *sql.Tx) error {
			if err := s.checkFirst(ctx, SQL(tx), innermost); err != nil {
				return err
			}
			return fn(ctx, tx)
		})
		if end == uncertain {
			err = unknown(err)
		}
		return end, err
	})
}

// notDone returns the error of a function of Do, without the core.ErrDone that it may match: the caller of Do would take
// that for the work of Do, which was not committed.
func notDone(err error) error {
	if !errors.Is(err, core.ErrDone) {
		return err
	}
	return invalid("the function returned an error that other work is done, or it called Once for the work of Do: "+
		"nothing was committed. Let it handle the record of other work, and record this one nowhere else: %v", err)
}

// checkDo returns the innermost holder of ctx, or an error if a call of Do cannot begin.
func (s *Store) checkDo(ctx context.Context, db *sql.DB) (holder.Holder, error) {
	if err := s.checkUse(ctx); err != nil {
		return holder.Holder{}, err
	}
	if db == nil {
		return holder.Holder{}, invalid("the *sql.DB is nil")
	}
	return holder.Innermost(ctx)
}

// checkFirst is Check for the holder that the call of Do has found.
func (s *Store) checkFirst(ctx context.Context, tx Tx, h holder.Holder) error {
	if err := s.checkCall(ctx, tx); err != nil {
		return err
	}
	return s.checkToken(ctx, tx, h)
}

// repeat calls try until it has ended otherwise than by a rollback that others have caused, at most maxTries times,
// while ctx and the lease live.
func (s *Store) repeat(ctx context.Context, h holder.Holder, try func() (ending, error)) error {
	for n := 1; ; n++ {
		end, err := try()
		if end != rolledBack {
			return err
		}

		if n == maxTries {
			return fmt.Errorf("fence: gave up after %d transactions: %w", n, err)
		}

		if !pause(ctx, n) || h.HasEnded() {
			return s.explain(ctx, "not committed", err)
		}
	}
}

// pause waits before the transaction after the n-th one, longer each time. It returns false if ctx has ended.
func pause(ctx context.Context, n int) bool {
	longest := min(5*time.Millisecond<<min(n, 10), 200*time.Millisecond)
	timer := time.NewTimer(longest/2 + rand.N(longest/2))
	defer timer.Stop()

	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
