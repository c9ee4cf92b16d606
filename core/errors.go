package core

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// Each sentinel asks for a different reaction. Match them with [errors.Is]; [OpError] describes the failure.
var (
	// ErrHeld: another holder has the key, or an earlier waiter gets it first. Skip, or try again after
	// OpError.RetryAfter, or after a pause of your own if that is 0.
	ErrHeld = errors.New("held by another holder")
	// ErrDone: the key is recorded as completed (OpError.Record). Nothing is left to do.
	ErrDone = errors.New("already completed")
	// ErrUnavailable: no quorum of nodes could be reached, or could vote. Alert; try again later.
	ErrUnavailable = errors.New("no quorum of nodes available")
	// ErrLost: the lease ended before its holder ended it. Stop acting on it.
	ErrLost = errors.New("lease lost")
	// ErrReleased is the cause of a lease's context after Release or Complete. Only operations on a lease that is over
	// return it.
	ErrReleased = errors.New("lease released")
	// ErrClosed: the Locker is closed.
	ErrClosed = errors.New("locker closed")

	// ErrInvalid: an argument is invalid: a key that is empty or longer than 512 bytes, no key or more than 64, a
	// result of more than 64 KiB, options, the list of nodes, a nil context or function, a Locker or Lease that this
	// package did not make. The error names every fault, and nothing has changed.
	ErrInvalid = errors.New("invalid argument")
)

// A LossReason says why a lease was lost.
type LossReason string

const (
	LossExpired LossReason = "expired" // no quorum confirmed a renewal in time, or Complete came too late
	LossTaken   LossReason = "taken"   // a quorum can no longer confirm it: nodes forgot it, or it was taken over
	// LossForgotten: too many nodes lost their memory since they last confirmed the lease in time to tell whether the
	// key was granted to another caller. It is the reason of a Complete that failed, and of the Release after that.
	LossForgotten LossReason = "forgotten"
	LossClock     LossReason = "clock"    // this machine's clock stood still: the lease is older than it seems
	LossMaxHold   LossReason = "max_hold" // MaxHold, or Extend, ended it
	LossClosed    LossReason = "closed"   // the Locker was closed
	LossRevoked   LossReason = "revoked"  // an operator ended it: see package admin
	// LossStale: a store has seen a greater fencing token of the key, so a later lease has been at work. Only the errors
	// of package fence have it.
	LossStale LossReason = "stale"
)

// A Record is a completion record: the proof that a key is done.
type Record struct {
	Token  uint64 // fencing token of the lease that completed the key
	Result []byte // the result passed to Complete
}

// recordOf returns a copy of a record for the caller, who may change it while requests that carry the record are in
// flight.
func recordOf(r *wire.Record) *Record {
	return &Record{r.Token, slices.Clone(r.Result)}
}

var (
	errNoContext  = fmt.Errorf("lockkit: %w: the context is nil", ErrInvalid)
	errNoFunction = fmt.Errorf("lockkit: %w: the function is nil", ErrInvalid)
)

// checkCall returns errUnmade if the receiver of a call was not made by this package, and errNoContext for a nil
// context.
func checkCall(ctx context.Context, made bool, errUnmade error) error {
	switch {
	case !made:
		return errUnmade
	case ctx == nil:
		return errNoContext
	}
	return nil
}
