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

// A refusal says why an attempt did not become a lease. Callers that wait in this process for the same key get a copy
// of it. The errors of operations are made from it.
type refusal struct {
	outcome     quorum.Outcome
	err         error // the sentinel
	heldKind    HeldKind
	hint        string        // of the holder that has the key
	at          clock.Instant // when the attempt ended
	retry       time.Duration // when to try again, counted from at
	cooldown    time.Duration // the time during which no caller can get the key, counted from at
	record      *Record
	nodes       []NodeReply
	silentSince clock.Instant // since when no quorum could be reached; 0 = a quorum could
	retryNow    bool          // try again at once, because this process has learnt a longer max TTL
	undecided   bool          // replies that are missing could have changed the outcome
}

// isSplit reports whether a short random time may break the tie.
func (r *refusal) isSplit() bool {
	return r.outcome == quorum.Split || r.outcome == quorum.Unsettled
}

// reservedForWaiter returns the refusal of a key that an earlier waiter gets first. hint is the hint of the holder.
func reservedForWaiter(hint string) refusal {
	return refusal{err: ErrHeld, heldKind: HeldForWaiter, hint: hint}
}

// heldKindOf returns the kind of a held key, given the votes.
func heldKindOf(t *quorum.Tally) HeldKind {
	kept, holders := t.InCooldown(), t.WithVerdict(wire.Held)
	switch {
	case kept != 0 && kept == holders:
		return HeldCooldown
	case t.IsSplit():
		return HeldSplit
	case holders.Len() >= t.Q:
		return HeldByOther
	default:
		return HeldForWaiter
	}
}

var errTooSlow = fmt.Errorf(
	"%w: the nodes granted the key, but took longer than the lease can be trusted", ErrUnavailable,
)

// errUnsettled is the error of an attempt that found a completion record which no quorum is known to have. The key
// may be free.
var errUnsettled = fmt.Errorf(
	"%w: a node has a completion record, and too few nodes answered to tell whether it counts", ErrUnavailable,
)

// refusalErrors has the error of a failed attempt for each outcome.
var refusalErrors = [...]error{
	quorum.Held:        ErrHeld,
	quorum.Queued:      ErrHeld,
	quorum.SharedTurn:  ErrHeld,
	quorum.Split:       ErrHeld,
	quorum.Unsettled:   errUnsettled,
	quorum.Quarantined: ErrUnavailable,
	quorum.OutOfReach:  ErrUnavailable,
	quorum.Done:        ErrDone,
	quorum.Won:         errTooSlow,
}

// refusalOf returns the refusal of a failed attempt, given the votes. If two nodes are one server, the second has no
// vote.
func refusalOf(g *node.Group, t *quorum.Tally) refusal {
	first, second, same := t.SameServer()
	if same {
		err := fmt.Errorf("%w: it shares its replication history with node %d", node.ErrSameServer, first)
		t.Votes[second] = quorum.NewVote(wire.Failed, err)
	}

	outcome := t.AcquireOutcome()
	voters := t.Voters()
	refused := refusal{
		outcome:   outcome,
		err:       refusalErrors[outcome],
		retry:     t.RetryAfter(),
		hint:      t.Hint(),
		nodes:     replies(g, t),
		undecided: voters < t.Q && voters+t.Count(wire.Pending) >= t.Q,
	}
	if refused.err == ErrHeld { //nolint:errorlint // refusalErrors has the sentinel itself
		refused.heldKind = heldKindOf(t)
		refused.cooldown = t.CooldownLeft()
	}
	if same {
		refused.err = fmt.Errorf("%w: %w", ErrUnavailable, node.ErrSameServer)
	}
	return refused
}

// pauseRange returns the shortest and the longest pause before the next attempt, unless the nodes notify the call.
// The pause is drawn at random between them, so that contenders do not come at the same time. late reports that the
// call has shared its turn too often.
func (r *refusal) pauseRange(p *policy, late bool) (least, most time.Duration) {
	switch r.outcome {
	case quorum.Quarantined:
		// Shorter than the quarantine: another node may come back before.
		d := min(r.retry, max(p.retryMax, p.quarantinePause))
		return d, d + p.retryMin
	case quorum.SharedTurn, quorum.Split, quorum.Unsettled:
		// If the call has shared its turn too often, the turn counts for no call, and the pause is that of a split
		// vote.
		isTurn := r.outcome == quorum.SharedTurn && !late
		if isTurn {
			return 0, queue.NotifyWindow
		}
		return 0, p.retryMin
	case quorum.Held:
		free := cmp.Or(r.retry, p.retryMax)
		return min(p.retryMin, free), min(p.retryMax, free+p.retryMin)
	case quorum.Queued:
		free := cmp.Or(r.retry, queue.FallbackMax)
		return min(queue.FallbackMin, free), min(queue.FallbackMax, free)
	default: // the nodes are polled
		return p.retryMin, p.retryMax
	}
}

// stopError returns the error of a call that stops: the last answer of the nodes, the end of its context, or the end
// of the Locker.
func (r *refusal) stopError(ctx context.Context, g *node.Group, op OpKind, key string) *OpError {
	failure := newOpError(op, key, r.err)
	failure.Record = r.record
	failure.Nodes = slices.Clone(r.nodes) // other callers get the same nodes

	// If a deadline ended the wait, the error also says what was known. A round that was cut short proves nothing if
	// the missing replies could have changed its outcome.
	err := contextError(ctx)
	timedOut := err != nil && ctx.Err() == context.DeadlineExceeded
	isKnown := r.err != nil && !r.undecided
	switch {
	case timedOut && isKnown:
		failure.Ended = err
	case err != nil:
		failure.setErr(err)
	case g.IsClosing():
		failure.setErr(ErrClosed)
	}

	class := ClassOf(failure.Err)
	if class == ClassHeld {
		failure.Held = r.heldKind
	}
	mayRetry := class == ClassHeld || class == ClassUnavailable
	if r.retry > 0 && mayRetry {
		failure.RetryAfter = max(r.retry-g.Clock.Now().Since(r.at), time.Millisecond)
	}
	return failure
}

// outcomeErrors has, for each outcome of a round about a lease, the error of the operation and the reason of the loss.
var outcomeErrors = [...]struct {
	err    error
	reason LossReason
}{
	quorum.Inconclusive: {ErrUnavailable, ""},
	quorum.ClockStopped: {ErrLost, LossClock},
	quorum.Taken:        {ErrLost, LossTaken},
	quorum.Revoked:      {ErrLost, LossRevoked},
	quorum.Forgotten:    {ErrLost, LossForgotten},
}

// outcomeError returns the error of an operation on a lease with this outcome; nil if a quorum confirmed the operation.
func outcomeError(op OpKind, key string, outcome quorum.LeaseOutcome, nodes []NodeReply) error {
	if outcome == quorum.Confirmed {
		return nil
	}
	return &OpError{
		Op:     op,
		Key:    key,
		Err:    outcomeErrors[outcome].err,
		Reason: outcomeErrors[outcome].reason,
		Nodes:  nodes,
	}
}
