package fence

import (
	"bytes"
	"context"
	"crypto/rand"
	"math"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/fence/internal/holder"
)

// maxResult is the largest result, as in package core.
const maxResult = 64 << 10

// Once records that the work of ctx is done, in the transaction that has its effect: both are committed, or neither
// is. It waits for a transaction that has recorded the same work and has not ended. If that one or an earlier one
// was committed, the error is a *core.OpError that matches core.ErrDone and has the record: roll the transaction
// back, and take the result. ctx names the work as [core.Locker.WithWork] says; otherwise the error matches
// core.ErrInvalid, and says how to name it. Any other error comes from the database.
//
// The work stays done for the retention ([Store.WithRetention]). If a work has several transactions, name them with
// [Step].
func (s *Store) Once(ctx context.Context, tx Tx) error {
	_, err := s.once(ctx, tx)
	return err
}

// once is Once, and returns the random run of the record that it has inserted.
func (s *Store) once(ctx context.Context, tx Tx) (run []byte, err error) {
	if err := s.checkCall(ctx, tx); err != nil {
		return nil, err
	}
	work, err := workOf(ctx)
	if err != nil {
		return nil, err
	}

	run = make([]byte, 16)
	_, _ = rand.Read(run) // it never fails

	query, args := s.statements.once.with(params{
		"id": holder.Hash(work), "token": tokenOf(ctx), "run": run, "retention": s.retention.Microseconds(),
	})

	var recorded, result []byte
	var token int64
	err = tx.QueryRow(ctx, query, args...).Scan(&recorded, &token, &result)
	if err != nil {
		return nil, s.explain(ctx, "once", err)
	}
	if bytes.Equal(recorded, run) {
		return run, nil
	}

	// There was a record before.
	return recorded, &core.OpError{
		Op:     core.OpOnce,
		Key:    work,
		Err:    core.ErrDone,
		Record: &core.Record{Token: uint64(token), Result: result},
	}
}

// SetResult stores the result of the work, of at most 64 KiB, in the record that Once has made in the same
// transaction. Later calls of Once return it. If the result is larger, or there is no record of this lease without a
// result, the error matches core.ErrInvalid: roll the transaction back. SetResult can be called once after Once.
func (s *Store) SetResult(ctx context.Context, tx Tx, result []byte) error {
	if err := s.checkCall(ctx, tx); err != nil {
		return err
	}
	work, err := workOf(ctx)
	if err != nil {
		return err
	}
	if len(result) > maxResult {
		return invalid("the result has %d bytes, may have at most %d", len(result), maxResult)
	}

	// A result is never NULL, so the statement changes each row that it finds, and the number of affected rows is
	// the same with all settings of a driver.
	result = append([]byte{}, result...)
	query, args := s.statements.setResult.with(params{
		"id": holder.Hash(work), "token": tokenOf(ctx), "result": result,
	})

	affected, err := tx.Exec(ctx, query, args...)
	if err != nil {
		return s.explain(ctx, "set the result", err)
	}
	if affected != 1 {
		return errNoResult
	}
	return nil
}

// tokenOf returns the token of the innermost lease of ctx, or 0.
func tokenOf(ctx context.Context) int64 {
	innermost, err := holder.Innermost(ctx)
	if err != nil {
		return 0
	}
	return int64(min(innermost.Token, math.MaxInt64))
}

// Step returns a context whose work is a part of the work of ctx, for work that has several transactions: each is
// done once, and the names tell them apart. Without Step, the second transaction would be taken for a repetition of
// the first. If ctx names no work, Step returns ctx.
func Step(ctx context.Context, name string) context.Context {
	work, err := workOf(ctx)
	if err != nil {
		return ctx
	}

	// The identity of the work is one part of the key, so no other work has the identity of the step.
	base, _ := core.Work(ctx)
	return context.WithValue(ctx, stepKey{}, step{base: base, work: core.Key("step", work, name)})
}

// A step is a part of the work base. It does not count in a context that names other work.
type step struct{ base, work string }

type stepKey struct{}

// workOf returns the work of ctx, with its steps.
func workOf(ctx context.Context) (string, error) {
	work, isNamed := core.Work(ctx)
	if !isNamed {
		return "", errNoWork
	}

	if s, ok := ctx.Value(stepKey{}).(step); ok && s.base == work {
		return s.work, nil
	}
	return work, nil
}
