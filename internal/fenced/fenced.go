// Package fenced tells the adapters how an error of package core/fence ends the work of the handler that returned
// it.
package fenced

import (
	"context"
	"errors"

	"github.com/lockkit/lockkit/core"
)

// IsDone reports whether err says that the work of ctx is recorded as done in the database. The record of a step of
// the work, or of other work, does not count. Nor does a record that is joined with another error, because the
// handler has failed at something else then.
func IsDone(ctx context.Context, err error) bool {
	work, isNamed := core.Work(ctx)
	if !isNamed {
		return false
	}

	for ; err != nil; err = errors.Unwrap(err) {
		op, isOpError := err.(*core.OpError) //nolint:errorlint // the loop unwraps, but not joined errors
		if !isOpError {
			continue
		}

		isDone := op.Err == core.ErrDone //nolint:errorlint // the sentinel itself
		return isDone && op.Op == core.OpOnce && op.Key == work
	}
	return false
}

// IsStale reports whether err says that a store has seen a greater fencing token.
func IsStale(err error) bool {
	if op, isOpError := err.(*core.OpError); isOpError { //nolint:errorlint // IsStale itself walks the tree
		return op.Reason == core.LossStale
	}

	switch wrapper := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		return IsStale(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range wrapper.Unwrap() {
			if IsStale(inner) {
				return true
			}
		}
	}
	return false
}
