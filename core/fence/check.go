package fence

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/lockkit/lockkit/core"
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

	lease, held := core.FromContext(ctx)
	_, permitted := semaphore.FromContext(ctx)
	switch {
	case !held && permitted:
		return errPermit
	case !held:
		return errNoLease
	}
	return s.checkToken(ctx, tx, holderOf(lease))
}

// CheckLease is Check for a lease that is not the innermost one of ctx, such as a lease of several that are held at
// once.
func (s *Store) CheckLease(ctx context.Context, tx Tx, lease *core.Lease) error {
	if err := s.checkCall(ctx, tx); err != nil {
		return err
	}
	return s.checkToken(ctx, tx, holderOf(lease))
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
	return s.checkToken(ctx, tx, holder{permit.KeyPrefix(), permit.SlotKey(), permit.FencingToken()})
}

// A holder is a lease or a permit, as far as the database is concerned.
type holder struct {
	keyPrefix, key string // of the lock; for a permit, of the slot's lock
	token          uint64
}

func holderOf(lease *core.Lease) holder {
	return holder{lease.KeyPrefix(), lease.Key(), lease.FencingToken()}
}

// checkToken checks the token of a lease or a permit. Whether the lease is still held does not matter: if it is not, and no
// greater token was checked, no later holder has begun a transaction that could be overtaken.
func (s *Store) checkToken(ctx context.Context, tx Tx, h holder) error {
	if h.token == 0 || h.token > math.MaxInt64 {
		return invalid("the lease or permit has no fencing token that fits a signed 64-bit column: " +
			"it was not made by core.Locker.Acquire or semaphore.Semaphore.Acquire")
	}

	own := int64(h.token)
	id := hash(core.Key(h.keyPrefix, h.key))

	seen, err := s.record(ctx, tx, params{"id": id, "token": own})
	switch {
	case errors.Is(err, ErrTooOld):
		return fmt.Errorf("fence: check %q: %w: the database has no row of the key, and token %d is older than %v: "+
			"release the lease, and acquire it again", h.key, ErrTooOld, h.token, maxSilence)
	case err != nil:
		return s.explain(ctx, fmt.Sprintf("check %q", h.key), err)
	case seen > own:
		return &core.OpError{
			Op:     core.OpCheck,
			Key:    h.key,
			Err:    core.ErrLost,
			Detail: fmt.Errorf("%w: %w: the database has seen token %d, this lease has %d", core.ErrLost, ErrStale, seen, own),
			Reason: core.LossStale,
		}
	}
	return nil
}

// record records a token unless the row has a greater one, and returns the greatest. It returns ErrTooOld if there
// is no row, and the token is too old for a new one.
func (s *Store) record(ctx context.Context, tx Tx, p params) (seen int64, err error) {
	query := s.statements.check
	err = tx.QueryRow(ctx, query.text, query.args(p)...).Scan(&seen)
	if !errors.Is(err, sql.ErrNoRows) {
		return seen, err
	}

	// The token is old: its lease has been held for long. It must not make a new row, because a row with a greater
	// token may have been deleted.
	raise := s.statements.raise
	_, err = tx.Exec(ctx, raise.text, raise.args(p)...)
	if err != nil {
		return 0, err
	}

	query = s.statements.token
	err = tx.QueryRow(ctx, query.text, query.args(p)...).Scan(&seen)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, ErrTooOld
	}
	return seen, err
}

// hash returns the id of a row. Keys are not stored as texts, because a collation may equate different ones, and
// because they may be secrets.
func hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
