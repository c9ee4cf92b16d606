package core

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// Complete records the key as done, with result, and releases it, in one step on each node. For as long as
// Retention, acquiring the key fails with ErrDone and the record. The lease's context ends at once.
//
// A nil error means that a quorum holds the record. Nodes that could not be reached get it when somebody asks for
// the key. Nobody is granted the key, and no other record of it can come
// about, as long as so many of the nodes that have the record keep their memory that no quorum is without one:
// of three nodes two, of five three. Complete may also be called after the lease was lost, for an hour less the
// drift: it succeeds only where nobody was granted the key in between. Repeated after somebody else has settled
// this record, it succeeds, too.
//
// While too few nodes answer to tell, Complete repeats itself: until ctx ends, or for a TTL where ctx has no deadline;
// until the Locker is closed; and for no longer than the record can count, an hour. The end of ctx does not cut a round
// short, so a ctx that has ended is good for one. The lease's own context has: it ends as Complete begins.
//
// ErrLost: it was not recorded by this call; what reached a minority of nodes may still be settled by a later
// acquirer, unless somebody else completes first. With reason taken, somebody was granted the key. With reason
// revoked, somebody has ended the lease by admin.Revoke. With reason
// forgotten, so many nodes lost their memory since they last confirmed the lease in time that too few can tell
// whether somebody was. ErrUnavailable: too few nodes answered, so what becomes of the record is open: Complete
// may be repeated (the first result counts); if it is not, the next acquirer either finds it and settles it, or
// is granted the key. ErrReleased: Release was called before. ErrClosed: Close has
// taken the lease away. An error matching ErrInvalid changes nothing: the
// lease goes on.
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

// pauseBeforeRetry waits before Complete is repeated, and reports whether it may be.
func (lease *Lease) pauseBeforeRetry(ctx context.Context) bool {
	paused := lease.attempt.e.Pause(ctx, lease.attempt.p.retryMax, nil)
	return paused && !lease.completionTooLate()
}

// completionTooLate reports whether the fencing counters may be gone that would show a later holder.
func (lease *Lease) completionTooLate() bool {
	return float64(-lease.remaining()) > float64(wire.IdleFence)*(1-lease.attempt.p.drift)
}

// completeOnce is one round of Complete.
func (lease *Lease) completeOnce(ctx context.Context, result []byte) error {
	if len(result) > maxResult {
		return fmt.Errorf("lockkit: %w: the result has %d bytes, may have at most %d", ErrInvalid, len(result), maxResult)
	}

	held, life := lease.endByHolder()
	defer lease.passTurn(held, false)
	lease.observeEnd(held)
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

	ctx, end := lease.attempt.p.observe(ctx, OpComplete, lease.Key(), false, lease.FencingToken())
	bounded := context.Background() //nolint:forbidigo // the node timeout limits the round
	rec := lease.proposal(result)
	nodes, err := lease.attempt.offerRecord(ctx, bounded, rec, lease.FencingToken())
	lease.concludeCompletion(err)
	if end != nil {
		end(Outcome{Err: err, Token: lease.FencingToken(), Nodes: nodes})
	}
	return err
}

// concludeCompletion notes what a completion came to. A refusal is what Release reports from then on.
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

// refusedCompletion returns the error of the last Complete if it was refused; nil if it was not.
func (lease *Lease) refusedCompletion() error {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	if lease.refusedReason == "" {
		return nil
	}
	return lease.lostError(OpComplete, lease.refusedReason)
}

// proposal returns the only record that the lease ever offers. A ballot must not stand for two records, so a repeated call
// offers again what the first call may have left on a node.
func (lease *Lease) proposal(result []byte) *wire.Record {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	if lease.proposed == nil {
		lease.proposed = &wire.Record{
			Rest:   lease.attempt.p.retention,
			Token:  lease.FencingToken(),
			Result: slices.Clone(result),
		}
	}
	return lease.proposed
}

// recorded returns the result that the lease completed with, and whether it did.
func (lease *Lease) recordedResult() (result []byte, completed bool) {
	lease.attempt.mu.Lock()
	defer lease.attempt.mu.Unlock()
	if !lease.completed {
		return nil, false
	}
	return recordOf(lease.proposed).Result, true
}
