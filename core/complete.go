package core

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// Complete records the key as done, with result, and releases it, in one step on each node. For the retention,
// acquiring the key fails with ErrDone and the record. The lease's context ends at once.
//
// A nil error means that a quorum holds the record. Nodes that could not be reached get it when a caller asks for the
// key. The key is not granted, and no other record of it can be made, as long as every quorum has a node that has the
// record and kept its memory: two nodes of three, three of five. Complete may also be called after the lease was
// lost, for an hour less the drift: it succeeds only if the key was not granted in between. If another caller has
// settled this record, Complete succeeds when it is repeated, too.
//
// While too few nodes answer, Complete repeats itself: until ctx ends, or for a TTL if ctx has no deadline; until the
// Locker is closed; and for no longer than the record can count, an hour. The end of ctx does not cut a round short,
// so a ctx that has ended is good for one round. The lease's own context is such a ctx: it ends as Complete begins.
//
// The error matches one of these:
//
//   - ErrLost: this call did not record the key. Later acquirers may still settle a record that reached a minority of
//     nodes, unless another caller completes first. With reason taken, the key was granted to another caller. With
//     reason revoked, the lease was ended by admin.Revoke. With reason forgotten, too many nodes lost their memory
//     since they last confirmed the lease in time to tell whether the key was granted to another caller.
//   - ErrUnavailable: too few nodes answered, so it is open whether the record counts. Complete may be repeated (the
//     first result counts). If it is not, the next acquirer either finds the record and settles it, or is granted the
//     key.
//   - ErrReleased: Release was called before.
//   - ErrClosed: Close has ended the lease.
//   - ErrInvalid: nothing has changed, and the lease goes on. The result is too large, or the lease is one of a set
//     (AcquireAll): the keys of a set cannot be completed in one step, so a process that dies in between would leave some
//     of them done. Run DoAll inside of Once on a key for the whole work instead.
func (lease *Lease) Complete(ctx context.Context, result []byte) error {
	err := lease.checkCall(ctx)
	if err != nil {
		return err
	}
	err = lease.completeOnce(ctx, result)
	if !errors.Is(err, ErrUnavailable) {
		return err
	}

	_, bounded := ctx.Deadline()
	if !bounded {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, lease.attempt.p.ttl)
		defer stop()
	}
	for errors.Is(err, ErrUnavailable) && lease.pauseBeforeRetry(ctx) {
		err = lease.completeOnce(ctx, result)
	}
	return err
}

var errMemberCompletion = errors.New(
	"the lease is one of several that are held together, and they cannot be completed in one step: " +
		"run the work inside of Once on a key of its own",
)

// pauseBeforeRetry waits before Complete is repeated, and reports whether it may be repeated.
func (lease *Lease) pauseBeforeRetry(ctx context.Context) bool {
	paused := lease.attempt.e.Pause(ctx, lease.attempt.p.retryMax, nil)
	return paused && !lease.completionTooLate()
}

// completionTooLate reports whether the nodes may have dropped the fencing counters that would show a later holder.
func (lease *Lease) completionTooLate() bool {
	return float64(-lease.remaining()) > float64(wire.IdleFence)*(1-lease.attempt.p.drift)
}

// completeOnce asks the nodes once to record the completion.
func (lease *Lease) completeOnce(ctx context.Context, result []byte) error {
	if len(result) > maxResult {
		return fmt.Errorf(
			"lockkit: %w: the result has %d bytes, may have at most %d",
			ErrInvalid, len(result), maxResult,
		)
	}

	if lease.attempt.p.member {
		return fmt.Errorf("lockkit: complete %q: %w: %w", lease.Key(), ErrInvalid, errMemberCompletion)
	}

	// The context ends before the request is sent: the key must not be released while the context is live. The turn
	// of this process is passed on at the end, even if the observer ends the goroutine.
	held, life := lease.endByHolder()
	defer lease.passTurn(held, false)
	lease.observeEnd(held)

	// A repeated call that has its answer sends no request.
	switch {
	case life.completed:
		return nil
	case life.releaseCalled:
		return &OpError{Op: OpComplete, Key: lease.Key(), Err: ErrReleased}
	case lease.completionTooLate():
		tooLate := lease.lostError(OpComplete, LossExpired)
		lease.concludeCompletion(tooLate)
		return tooLate
	}

	e := lease.attempt.e
	joined := e.gate.Join()
	if !joined {
		return &OpError{Op: OpComplete, Key: lease.Key(), Err: ErrClosed}
	}
	defer e.gate.Leave()

	ctx, end := lease.attempt.observe(ctx, OpComplete)
	bounded := context.Background() //nolint:forbidigo // the node timeout limits the round
	rec := lease.proposal(result)
	nodes, err := lease.attempt.offerRecord(ctx, bounded, rec, lease.FencingToken())
	lease.concludeCompletion(err)

	if end != nil {
		end(Outcome{Err: err, Token: lease.FencingToken(), Nodes: nodes})
	}
	return err
}

// concludeCompletion records the result of a completion. Release reports a refusal from then on.
func (lease *Lease) concludeCompletion(err error) {
	var refused LossReason
	op, ok := errors.AsType[*OpError](err)
	if ok {
		refused = op.Reason
	}

	lease.attempt.mu.Lock()
	lease.recordCompletion(err == nil, refused)
	lease.attempt.mu.Unlock()
}

// refusedCompletion returns the error of the last Complete if it was refused, or else nil.
func (lease *Lease) refusedCompletion() error {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	if lease.refusedReason == "" {
		return nil
	}
	return lease.lostError(OpComplete, lease.refusedReason)
}

// proposal returns the only record that the lease ever offers. A ballot must not stand for two records, so a repeated
// call offers the record that the first call may have left on a node.
func (lease *Lease) proposal(result []byte) *wire.Record {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	if lease.proposed == nil {
		lease.proposed = &wire.Record{
			Retention: lease.attempt.p.retention,
			Token:     lease.FencingToken(),
			Result:    slices.Clone(result),
		}
	}
	return lease.proposed
}

// recordedResult returns the result with which the lease was completed, and reports whether it was completed.
func (lease *Lease) recordedResult() (result []byte, completed bool) {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	if !lease.completed {
		return nil, false
	}
	return recordOf(lease.proposed).Result, true
}
