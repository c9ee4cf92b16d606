package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/faults"
)

// A ReleaseOption is for a single Release.
type ReleaseOption func(*releaseOptions)

type releaseOptions struct{ cooldown time.Duration }

// Cooldown keeps the key taken for d after the release, at most 24h. Acquirers wait, or get ErrHeld with the time left in
// OpError.RetryAfter. The cooldown of the first Release counts: repeating it, in Do as well, neither shortens nor extends
// it. If no quorum confirms the release before the TTL ends, if the lease was lost, or after Complete, there is no
// cooldown. Nodes that lose their memory forget it. The default is 0: the key is free at once.
func Cooldown(d time.Duration) ReleaseOption { return func(o *releaseOptions) { o.cooldown = d } }

// cooldownOf returns the cooldown that the options set.
func cooldownOf(opts []ReleaseOption) (time.Duration, error) {
	if len(opts) == 0 {
		return 0, nil
	}
	var o releaseOptions
	var f faults.List
	faults.Set(&f, &o, opts)
	checkRange(&f, "cooldown", o.cooldown, 0, wire.Slack)
	if f != nil {
		return 0, fmt.Errorf("lockkit: release: %w: %w", ErrInvalid, errors.Join(f...))
	}
	return o.cooldown, nil
}

// Release gives the key back, with Cooldown when that is over. The lease's context ends at once, with
// cause ErrReleased. Release works with a cancelled ctx, which only lends its values; it takes at most the node
// timeout and may be repeated. After it, or Complete, has succeeded there is nothing left to do.
//
// A nil error means that a quorum confirmed it. ErrLost: the lease had ended before, or a Complete of it was refused with
// ErrLost, so the holder was not alone to its end. ErrUnavailable: no quorum confirmed it; the key may stay taken until its TTL is over,
// and Release is still being tried in the background. An error
// matching ErrInvalid changes nothing: the lease goes on. ErrClosed: it was not confirmed before the Locker was closed.
func (lease *Lease) Release(ctx context.Context, opts ...ReleaseOption) error {
	keep, err := cooldownOf(opts)
	err = cmp.Or(lease.checkCall(ctx), err)
	if err != nil {
		return err
	}

	lease.expire()
	held, life := lease.endByHolder()
	var next *queue.Turn
	defer func() { lease.passTurn(held, next != nil) }()
	lease.observeEnd(held)

	e := lease.attempt.e
	over := life.releaseConfirmed || life.completed
	switch {
	case life.completed && keep > 0:
		return &OpError{Op: OpRelease, Key: lease.Key(), Err: ErrReleased}
	case over && life.knownLoss() != "":
		return lease.lostError(OpRelease, life.knownLoss())
	case over:
		return nil
	}

	joined := e.gate.Join()
	switch {
	case joined:
		defer e.gate.Leave()
	case life.knownLoss() != "":
		return lease.lostError(OpRelease, life.knownLoss())
	default:
		return &OpError{Op: OpRelease, Key: lease.Key(), Err: ErrClosed}
	}

	ctx, end := lease.attempt.p.observe(ctx, OpRelease, lease.Key(), false, lease.FencingToken())
	to := lease.markReleased(keep)
	cooldown := lease.cooldownLeft()
	r := lease.attempt.newReleaseRound(cooldown)
	r.Begin(ctx, to)
	passesOn := held && cooldown == 0 && !e.IsClosing()
	if passesOn {
		next = e.localQueue.Next(lease.attempt.lock.Resource())
	}
	if next != nil {
		handOver(next, r)
	} else {
		node.Dispatch(r)
	}
	r.Wait(context.Background()) //nolint:forbidigo // a release goes on without its caller, bounded by the node timeout

	out := lease.concludeRelease(&r.Tally, held, end != nil)
	if end != nil {
		end(out)
	}
	return out.Err
}

// markReleased notes the release, and its cooldown unless there was a release before. It returns the nodes to ask.
func (lease *Lease) markReleased(keep time.Duration) quorum.Set {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	begins := lease.recordRelease()
	if begins && keep > 0 {
		lease.startCooldown(keep)
	}
	return lease.askedNodes
}

// A key that callers of this process stand in line for goes from hand to hand in one round trip: the release and the next
// caller's request leave in one batch. They obey the queues of the nodes like any other requests. These lines and a part of
// the line pay by 1.3 times the holds per second of a hot key next door, and twice as many over a network.

// handOver sends the release, and lets the next caller's request leave with it.
func handOver(next *queue.Turn, release *node.Round) {
	defer close(next.Come)
	next.Asked = true
	next.Ask(release)
}

// concludeRelease returns the outcome of a release, by the votes of its round.
func (lease *Lease) concludeRelease(t *quorum.Tally, held, observed bool) Outcome {
	lease.attempt.mu.Lock()
	lease.releaseConfirmed = lease.releaseConfirmed || t.Confirmed()
	news := lease.recordFoundLost(fateErrors[t.Released()].reason)
	reason := lease.knownLoss()
	lease.attempt.mu.Unlock()

	unnoticed := news && held
	if unnoticed {
		lease.logLoss(reason)
	}
	out := Outcome{Reason: reason, Unnoticed: unnoticed, Token: lease.FencingToken()}
	// The replies are copied only for an error or an observer.
	needsReplies := observed || reason != "" || !t.Confirmed()
	if needsReplies {
		out.Nodes = replies(lease.attempt.e.Group, t)
	}

	switch {
	case reason != "":
		out.Err = &OpError{Op: OpRelease, Key: lease.Key(), Err: ErrLost, Reason: reason, Nodes: out.Nodes}
	case !t.Confirmed():
		lease.attempt.p.Logger.Warn(
			"lockkit: release not confirmed, the key may stay taken until its TTL is over",
			lease.logAttrs(), "token", lease.FencingToken(),
		)
		retryAfter := max(lease.attempt.p.ttl, lease.keptFor())
		out.Err = &OpError{
			Op:         OpRelease,
			Key:        lease.Key(),
			Err:        ErrUnavailable,
			RetryAfter: retryAfter,
			Nodes:      out.Nodes,
		}
	}
	return out
}
