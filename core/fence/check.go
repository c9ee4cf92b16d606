package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence/internal/holder"
	"github.com/lockkit/lockkit/core/semaphore"
)

// Check refuses the transaction if the database has seen a greater fencing token for the key of the innermost lease
// of ctx, and records the token of that lease. An equal token passes. Check must be the first statement of the
// transaction (see the package document). If it fails, roll the transaction back.
//
// The error is a *core.OpError that matches ErrStale and core.ErrLost, and names the greater token; or it matches
// ErrTooOld; or core.ErrInvalid, if ctx has no lease or the transaction is nil. Any other error comes from the
// database.
func (s *Store) Check(ctx context.Context, tx Tx) error {
	if err := s.checkCall(ctx, tx); err != nil {
		return err
	}

	innermost, err := holder.Innermost(ctx)
	if err != nil {
		return err
	}
	return s.checkToken(ctx, tx, innermost)
}

// CheckLease is Check for a lease that is not the innermost one of ctx, such as a lease of several that are held at
// once.
func (s *Store) CheckLease(ctx context.Context, tx Tx, lease *core.Lease) error {
	if err := s.checkCall(ctx, tx); err != nil {
		return err
	}
	return s.checkToken(ctx, tx, holder.OfLease(lease))
}

// CheckPermit is Check for a permit of a semaphore. Tokens of permits can be compared within a slot only, so the database
// keeps a row for each slot: it refuses a holder if a later holder of the same slot has been at work, whatever holders of
// other slots do. Slot 0 is the key itself, and has the row of its lease.
//
// It orders the writes of one slot. If holders of different slots write the same rows, the transactions must agree
// among themselves.
func (s *Store) CheckPermit(ctx context.Context, tx Tx, permit *semaphore.Permit) error {
	if err := s.checkCall(ctx, tx); err != nil {
		return err
	}
	return s.checkToken(ctx, tx, holder.OfPermit(permit))
}

// checkToken checks the token of a lease or a permit. Whether the lease is still held does not matter: if it is not, and no
// greater token was checked, no later holder has begun a transaction that could be overtaken.
func (s *Store) checkToken(ctx context.Context, tx Tx, h holder.Holder) error {
	if err := h.Check(); err != nil {
		return err
	}

	own := int64(h.Token)
	seen, err := s.record(ctx, tx, params{"id": h.ID(), "token": own})
	switch {
	case errors.Is(err, ErrTooOld):
		return h.TooOld()
	case err != nil:
		return s.explain(ctx, fmt.Sprintf("check %q", h.Key), err)
	case seen > own:
		return h.Stale(seen)
	}
	return nil
}

// record records a token unless the row has a greater one, and returns the greatest. It returns ErrTooOld if there
// is no row, and the token is too old for a new one.
func (s *Store) record(ctx context.Context, tx Tx, p params) (seen int64, err error) {
	query, args := s.statements.check.with(p)
	err = tx.QueryRow(ctx, query, args...).Scan(&seen)
	if !errors.Is(err, sql.ErrNoRows) {
		return seen, err
	}

	// The token is old: its lease has been held for long. It must not make a new row, because a row with a greater
	// token may have been deleted.
	query, args = s.statements.raise.with(p)
	_, err = tx.Exec(ctx, query, args...)
	if err != nil {
		return 0, err
	}

	query, args = s.statements.token.with(p)
	err = tx.QueryRow(ctx, query, args...).Scan(&seen)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, ErrTooOld
	}
	return seen, err
}
