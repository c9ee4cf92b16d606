package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Errors of operations are made here, of what the votes come to.

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

var errTooSlow = fmt.Errorf("%w: the nodes granted the key, but took longer than the lease can be trusted", ErrUnavailable)

// refusals are the errors of an attempt that ended so.
var refusals = [...]error{quorum.Held: ErrHeld, quorum.Queued: ErrHeld, quorum.SharedTurn: ErrHeld, quorum.Split: ErrHeld, quorum.Unsettled: ErrHeld,
	quorum.Quarantined: ErrUnavailable, quorum.OutOfReach: ErrUnavailable, quorum.Done: ErrDone, quorum.Won: errTooSlow}

// refused says why an attempt failed. Of two nodes that are one server, the second has no vote.
func refused(g *node.Group, t *quorum.Tally) result {
	first, second, same := t.SameServer()
	if same {
		t.Votes[second] = quorum.Said(wire.Failed, fmt.Errorf("%w: it shares its replication history with node %d", node.ErrSameServer, first))
	}
	o := t.Acquired()
	res := result{outcome: o, err: refusals[o], retry: t.RetryAfter(), hint: t.Hint(), nodes: replies(g, t),
		open: t.Voters() < t.Q && t.Voters()+t.Count(wire.Pending) >= t.Q}
	if res.err == ErrHeld { //nolint:errorlint // of the table
		res.held, res.rests = heldAs(t), t.Rests()
	}
	if same {
		res.err = fmt.Errorf("%w: %w", ErrUnavailable, node.ErrSameServer)
	}
	return res
}

// pause is how long the next attempt waits at least and at most, unless the nodes tell it to try: by chance, so that contenders
// come one after the other. late: it was the turn of others, too, for too often.
func (r *result) pause(p *policy, late bool) (least, most time.Duration) {
	switch r.outcome {
	case quorum.Quarantined:
		// Not for all of it: another node may come back before.
		d := min(r.retry, max(p.retryMax, p.ttl/10))
		return d, d + p.retryMin
	case quorum.SharedTurn, quorum.Split, quorum.Unsettled:
		if r.outcome == quorum.SharedTurn && !late { // else it is nobody's
			return 0, queue.TellWithin
		}
		return 0, p.retryMin
	case quorum.Held:
		free := cmp.Or(r.retry, p.retryMax)
		return min(p.retryMin, free), min(p.retryMax, free+p.retryMin)
	case quorum.Queued:
		free := cmp.Or(r.retry, queue.FallbackMax)
		return min(queue.FallbackMin, free), min(queue.FallbackMax, free)
	default: // the nodes are asked again
		return p.retryMin, p.retryMax
	}
}

// stopped is the error of a call that ends, given what the nodes said last: that, or what else put an end to it.
func (r *result) stopped(ctx context.Context, g *node.Group, op OpKind, key string) *OpError {
	failure := &OpError{Op: op, Key: key, Err: r.err, Record: r.record, Nodes: slices.Clone(r.nodes)} // which others are told, too
	switch err := endOf(ctx); {
	case err != nil && ctx.Err() == context.DeadlineExceeded && r.err != nil && !r.open:
		failure.Ended = err
	case err != nil:
		failure.Err = err
	case g.IsClosing():
		failure.Err = ErrClosed
	}
	class := ClassOf(failure.Err)
	if class == ClassHeld {
		failure.Held = r.held
	}
	if r.retry > 0 && (class == ClassHeld || class == ClassUnavailable) {
		failure.RetryAfter = max(r.retry-g.Clock.Now().Since(r.at), time.Millisecond)
	}
	return failure
}

// fates are the errors of an operation on a lease that ended so, and why the lease is lost.
var fates = [...]struct {
	err    error
	reason LossReason
}{
	quorum.Undecided: {ErrUnavailable, ""}, quorum.Slept: {ErrLost, LossClock}, quorum.Taken: {ErrLost, LossTaken}, quorum.Revoked: {ErrLost, LossRevoked},
	quorum.Forgotten: {ErrLost, LossForgotten},
}

// fateError is the error of an operation that ended so, nil where it is confirmed.
func fateError(op OpKind, key string, fate quorum.Fate, nodes []NodeReply) error {
	if fate == quorum.Confirmed {
		return nil
	}
	return &OpError{Op: op, Key: key, Err: fates[fate].err, Reason: fates[fate].reason, Nodes: nodes}
}
