package core

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A result is why an attempt has no lease. Those who wait behind it in this process learn it, too.
type result struct {
	outcome quorum.Outcome
	err     error // sentinel
	held    HeldKind
	hint    string        // of the holder that is in the way
	at      clock.Instant // when it ended
	retry   time.Duration // from then on
	rests   time.Duration // from then on nobody gets the key for so long
	record  *Record
	nodes   []NodeReply
	silent  clock.Instant // since when no quorum has been reachable; 0 = one is
	again   bool          // try again at once, with what was learnt
	open    bool          // nodes that have not answered might have made it another
}

// split reports whether a short random time may break the tie.
func (r *result) split() bool { return r.outcome == quorum.Split || r.outcome == quorum.Unsettled }

// forWaiter is why a key is not had whose turn somebody else has, behind a holder with that hint.
func forWaiter(hint string) result { return result{err: ErrHeld, held: HeldForWaiter, hint: hint} }

// heldAs is the kind of held that a refusal is.
func heldAs(t *quorum.Tally) HeldKind {
	switch kept, holders := t.Kept(), t.With(wire.Held); {
	case kept != 0 && kept == holders:
		return HeldRests
	case t.Split():
		return HeldSplit
	case holders.Len() >= t.Q:
		return HeldByOther
	default:
		return HeldForWaiter
	}
}

// stopped is the error of a call that something other than the nodes put an end to, given what they said last.
func (r *result) stopped(ctx context.Context, e *engine, op OpKind, key string) error {
	switch err := endOf(ctx); {
	case err != nil && ctx.Err() == context.DeadlineExceeded && r.err != nil && !r.open:
		failure := r.failure(e, op, key, r.err)
		failure.Ended = err
		return failure
	case err != nil:
		return r.failure(e, op, key, err)
	case e.IsClosing():
		return r.failure(e, op, key, ErrClosed)
	}
	return r.failure(e, op, key, r.err) // one round was all, or MaxWait has passed
}

// failure is an error of a call, with what the nodes said last.
func (r *result) failure(e *engine, op OpKind, key string, err error) *OpError {
	failure := &OpError{Op: op, Key: key, Err: err, Record: r.record, Nodes: r.nodes}
	held := errors.Is(err, ErrHeld)
	if held {
		failure.Held = r.held
	}
	if r.retry > 0 && (held || errors.Is(err, ErrUnavailable)) {
		failure.RetryAfter = max(r.retry-e.Clock.Now().Since(r.at), time.Millisecond)
	}
	return failure
}
