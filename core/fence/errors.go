package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/fence/internal/holder"
)

var (
	// ErrStale means that the database has seen a greater fencing token for the key, so a later lease has been at work.
	// Errors that match it also match [core.ErrLost]. Nothing was written. Stop acting on the lease.
	ErrStale = holder.ErrStale
	// ErrTooOld means that the database has no row of the key, and the token is older than 30 days, so a row that refused it
	// may have been deleted. Nothing was written. Release the lease, and acquire it again: a new token passes.
	ErrTooOld = holder.ErrTooOld
	// ErrUnknown means that the connection or the context ended in COMMIT, and that it could not be found out whether
	// the transaction was committed. The error matches neither a loss nor the error of a context. Repeat Do: if the
	// work was done, Do says so.
	ErrUnknown = errors.New("unknown whether the transaction was committed")
)

// invalid returns an error that matches core.ErrInvalid.
func invalid(format string, args ...any) error { return holder.Invalid(format, args...) }

var (
	errNoTx   = invalid("the transaction is nil")
	errNoWork = invalid("the context does not name the work that is done: " +
		"name it with core.Locker.WithWork, by what is the same in each try. " +
		"core.Locker.Once names it, and so do cronlock, httplock for a request with an Idempotency-Key, " +
		"and queuelock for a task whose id asynq or queuelock.ID has made")
	errNoResult = invalid("the result cannot be recorded: call Once before, in the same transaction, " +
		"and SetResult only once after it. If a statement of the transaction has failed, the database may have " +
		"rolled it back: return such errors")
)

// explain returns the error of a statement, with advice if the cause is known.
func (s *Store) explain(ctx context.Context, what string, err error) error {
	advice := ""
	switch kind := kindOf(err); {
	case errors.Is(err, sql.ErrTxDone):
		advice = ": the transaction has ended: begin a new one"
	case kind == kindNoTable:
		advice = fmt.Sprintf(": create the tables that Store.Schema returns and lockctl fence-schema %v prints", s.dialect)
	case kind == kindSyntax:
		advice = fmt.Sprintf(": the server is not what fence.New was told: the dialect is %v", s.dialect)
	}

	return holder.Explain(ctx, what, err, advice)
}
