package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
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
	for errors.Is(err, ErrUnavailable) && lease.pauses(ctx, lease.p.retryMax) && !lease.spent() {
		err = lease.completeOnce(ctx, result)
	}
	return err
}

// pauses waits for d, and reports whether neither ctx nor the Locker has ended meanwhile.
func (lease *Lease) pauses(ctx context.Context, d time.Duration) bool {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	case <-lease.e.Closing:
	}
	return ctx.Err() == nil && !lease.e.IsClosing()
}

// spent reports whether the counters that would tell of a later holder may be gone.
func (lease *Lease) spent() bool {
	return float64(-lease.left()) > float64(wire.IdleFence)*(1-lease.p.drift)
}

// completeOnce is one round of Complete.
func (lease *Lease) completeOnce(ctx context.Context, result []byte) error {
	p := lease.p
	if len(result) > maxResult {
		return fmt.Errorf("lockkit: %w: the result has %d bytes, may have at most %d", ErrInvalid, len(result), maxResult)
	}
	was := lease.end()
	defer lease.letGo(was, false)
	lease.tellEnd(was)
	e := lease.e
	lease.mu.Lock()
	released, completed := lease.released, lease.completed
	lease.mu.Unlock()
	switch {
	case completed:
		return nil
	case released:
		return &OpError{Op: OpComplete, Key: lease.lock.Key, Err: ErrReleased}
	case lease.spent():
		return &OpError{Op: OpComplete, Key: lease.lock.Key, Err: ErrLost, Reason: LossExpired}
	}
	if !e.gate.Join() {
		return &OpError{Op: OpComplete, Key: lease.lock.Key, Err: ErrClosed}
	}
	defer e.gate.Leave()
	ctx, end := p.observe(ctx, OpComplete, lease.lock.Key, false, lease.token)
	forIt := context.Background() //nolint:forbidigo // bounded by the node timeout
	nodes, err := lease.propose(ctx, forIt, lease.proposal(result), lease.token, end != nil)
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
func (a *attempt) proposal(result []byte) *wire.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.proposed == nil {
		a.proposed = &wire.Record{Rest: a.p.retention, Token: a.token, Result: slices.Clone(result)}
	}
	return a.proposed
}

// propose has all nodes accept a record under a ballot, and reports whether a quorum did: only then is it
// decided. When wait is over it is open what becomes of the record: what was offered may stand.
func (a *attempt) propose(ctx, wait context.Context, rec *wire.Record, ballot uint64, observed bool) ([]NodeReply, error) {
	r := a.offering(rec, ballot, false)
	r.Send(ctx, quorum.All(len(a.nodes)))
	r.Wait(wait)
	t := &r.Tally
	fate := t.Recorded(rec.Token)
	if fate == quorum.Confirmed {
		return report(a.e.Group, t, observed), nil
	}
	err := a.fateError(OpComplete, fate)
	err.Nodes = report(a.e.Group, t, true)
	return err.Nodes, err
}

// offering is the round that hands a record to nodes and ends the attempt there. A record that is known to be
// decided is accepted by nodes that have promised a later token, or forgotten one, too.
func (a *attempt) offering(rec *wire.Record, ballot uint64, decided bool) *node.Round {
	a.mu.Lock()
	a.completing = true
	each := a.lock.Complete(a.p.lease, len(a.nodes), func(i int) wire.Complete {
		return wire.Complete{Ballot: ballot, Memory: a.nodes[i].memory, Rest: rec.Rest, Token: rec.Token, Result: rec.Result, Bury: a.p.bury,
			Decided: decided, Channel: a.e.waits.Channels[a.lock.Bucket], Quits: a.quitting()}
	})
	a.mu.Unlock()
	r := a.round(wire.OpComplete, (*node.Round).RecordDecided)
	r.Must, r.Each, r.Bulk = true, each, len(rec.Result)
	return r
}
