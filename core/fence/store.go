package fence

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/fence/internal/holder"
)

// A Store checks fencing tokens and records work in one database. It is safe for concurrent use.
type Store struct {
	dialect    Dialect
	statements *statements
	retention  time.Duration

	enginesChecked *atomic.Bool // shared with the Stores that are derived from this one
}

// New returns a Store for databases of the dialect. The methods of the Store fail with core.ErrInvalid if the
// dialect is not one of the constants. New sends nothing. Create the tables of [Store.Schema] first.
func New(dialect Dialect) *Store {
	return &Store{
		dialect:        dialect,
		statements:     statementsOf(dialect),
		retention:      holder.MaxSilence,
		enginesChecked: new(atomic.Bool),
	}
}

// WithRetention returns a Store on the same database that keeps records of work for d, from a minute to ten years.
// After that, [Store.Clean] deletes them, and the work can run again. The default is 30 days. Choose more than the
// time after which a request, a task or a tick may still be repeated. If d is out of range, the error matches
// core.ErrInvalid.
func (s *Store) WithRetention(d time.Duration) (*Store, error) {
	const most = 10 * 365 * 24 * time.Hour
	if d < time.Minute || d > most {
		return nil, invalid("WithRetention(%v): must be at least 1m and at most ten years", d)
	}
	derived := *s
	derived.retention = d
	return &derived, nil
}

// Schema returns the statements that create the two tables of the Store. They end with semicolons. Run them as part
// of your migrations: no method of the Store creates a table. "lockctl fence-schema" prints them. Schema returns ""
// if the dialect is not one of the constants.
func (s *Store) Schema() string {
	if s == nil {
		return ""
	}
	return schemas[s.dialect]
}

// checkUse returns an error if the Store or the context cannot be used.
func (s *Store) checkUse(ctx context.Context) error {
	if s == nil || schemas[s.dialect] == "" {
		return invalid("the dialect is none of PostgreSQL, MariaDB and SQLite")
	}
	if ctx == nil {
		return holder.ErrNoContext
	}
	return nil
}

// checkCall returns an error if the Store, the context or the transaction cannot be used. At the first call with
// MariaDB, it also asks whether the tables have an engine that can roll back. It asks information_schema, which
// takes no snapshot, so the check of a token is still the first statement that reads.
func (s *Store) checkCall(ctx context.Context, tx Tx) error {
	if err := s.checkUse(ctx); err != nil {
		return err
	}
	if tx == nil {
		return errNoTx
	}
	if s.dialect != MariaDB || s.enginesChecked.Load() {
		return nil
	}

	var unfit sql.NullString // an empty text is NULL in the mode EMPTY_STRING_IS_NULL
	query, args := s.statements.engines.with(nil)
	err := tx.QueryRow(ctx, query, args...).Scan(&unfit)
	if kindOf(err) == kindNoTable { // it has no information_schema
		return fmt.Errorf("fence: the server is not what fence.New was told: the dialect is %v: %w", s.dialect, err)
	}
	if err != nil {
		return s.explain(ctx, "the engines of the tables", err)
	}

	if unfit.Valid {
		return invalid("tables whose engine cannot roll back: %s: they must have InnoDB (ALTER TABLE … ENGINE = InnoDB)", unfit.String)
	}
	s.enginesChecked.Store(true)
	return nil
}
