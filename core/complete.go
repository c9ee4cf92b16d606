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
// forgotten, so many nodes lost their memory since they last confirmed the lease in time that too few can tell
// whether somebody was. ErrUnavailable: too few nodes answered, so what becomes of the record is open: Complete
// may be repeated (the first result counts); if it is not, the next acquirer either finds it and settles it, or
// is granted the key. ErrReleased: Release was called before. ErrClosed: Close has
// taken the lease away. An error matching ErrInvalid changes nothing: the
// lease goes on.
func (lease *Lease) Complete(ctx context.Context, result []byte) error {
	if err := lease.fit(ctx); err != nil {
		return err
	}
	err := lease.completeOnce(ctx, result)
	if !errors.Is(err, ErrUnavailable) {
		return err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, lease.p.ttl)
		defer stop()
	}
	for errors.Is(err, ErrUnavailable) && lease.e.Pause(ctx, lease.p.retryMax, nil) && !lease.spent() {
		err = lease.completeOnce(ctx, result)
	}
	return err
}

// spent reports whether the counters that would tell of a later holder may be gone.
func (lease *Lease) spent() bool {
	return float64(-lease.left()) > float64(wire.IdleFence)*(1-lease.p.drift)
}

// completeOnce is one round of Complete.
func (lease *Lease) completeOnce(ctx context.Context, result []byte) error {
	if len(result) > maxResult {
		return fmt.Errorf("lockkit: %w: the result has %d bytes, may have at most %d", ErrInvalid, len(result), maxResult)
	}
	held, life := lease.end()
	defer lease.letGo(held, false)
	lease.tellEnd(held)
	switch {
	case life.completed:
		return nil
	case life.released:
		return &OpError{Op: OpComplete, Key: lease.lock.Key, Err: ErrReleased}
	case lease.spent():
		return &OpError{Op: OpComplete, Key: lease.lock.Key, Err: ErrLost, Reason: LossExpired}
	}
	if !lease.e.gate.Join() {
		return &OpError{Op: OpComplete, Key: lease.lock.Key, Err: ErrClosed}
	}
	defer lease.e.gate.Leave()
	ctx, end := lease.p.observe(ctx, OpComplete, lease.lock.Key, false, lease.token)
	forIt := context.Background() //nolint:forbidigo // bounded by the node timeout
	nodes, err := lease.propose(ctx, forIt, lease.proposal(result), lease.token)
	if err == nil {
		lease.mu.Lock()
		lease.completed = true
		lease.mu.Unlock()
	}
	if end != nil {
		end(Outcome{Err: err, Token: lease.token, Nodes: nodes})
	}
	return err
}

// proposal is the one record that an attempt ever offers: a ballot must not stand for two, so what a first
// call may have left on a node is what every further call repeats.
func (lease *Lease) proposal(result []byte) *wire.Record {
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.proposed == nil {
		lease.proposed = &wire.Record{Rest: lease.p.retention, Token: lease.token, Result: slices.Clone(result)}
	}
	return lease.proposed
}
