package core

import (
	"cmp"
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// Acquire returns a lease on key. It waits until ctx ends, MaxWait has passed or the Locker is closed. ctx governs
// both the wait and the life of the lease, as in [database/sql.DB.BeginTx]: when it ends, the lease's context ends
// with it and the lease is not renewed any more. To limit the wait alone, use MaxWait or Detached.
//
// The error is an [*OpError] matching ErrHeld (once MaxWait has passed, or the deadline of ctx), ErrDone (the key is
// recorded as completed), ErrUnavailable (no quorum for as long as a TTL, or until MaxWait or the deadline),
// ErrClosed, or the context's error and cause. If the deadline of ctx ended the wait, the error matches both the
// reason for the wait, if that is known, and context.DeadlineExceeded. If an argument is invalid, the error matches
// ErrInvalid. Whatever the error, grants of nodes that can be reached have been released. Acquire waits for nodes in
// quarantine.
//
// A call that has to wait is in a queue on the nodes, which notify it when its turn has come. Within a process, callers
// wait in a local queue. Both queues are ordered by when the calls began; see guarantee 9 of docs/guarantees.md.
//
// The options apply to this call, as those of With apply to a Locker. An option that is not for a single call, or is
// invalid together with the others, is an error that says so.
//
// Acquire is not reentrant: if ctx runs under a lease on key, the error matches ErrHeld at once. See Reentrant.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	return l.acquire(ctx, key, false, opts)
}

// TryAcquire is Acquire without waiting for a holder. It takes one round, of at most the node timeout, and one more
// for each of these that is needed: to settle the fencing token, to settle a completion record, to release a part of
// the votes, and to ask again with a longer max TTL that a node has reported. If contenders that came at the same
// time have a part of the votes each, it tries again, after a pause of at most the least retry delay, up to five
// times in all, so that one of them gets the key.
//
// The error matches ErrHeld if the key is held, if another caller of this process waits for it, or if it is the turn
// of an earlier waiter, for at most 150 ms after a hold.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...CallOption) (*Lease, error) {
	return l.acquire(ctx, key, true, opts)
}

// acquire is Acquire, or TryAcquire if try.
func (l *Locker) acquire(ctx context.Context, key string, try bool, opts []CallOption) (*Lease, error) {
	p, err := l.policyForCall(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	return l.acquireAs(ctx, key, try, p, errNoSecondLease)
}

// checkKey returns an error if the key is invalid.
func checkKey(key string) error {
	fault := keyFault(key)
	if fault == nil {
		return nil
	}
	return fmt.Errorf("lockkit: %w: %w", ErrInvalid, fault)
}

// keyFault returns the fault of a key whose length is invalid.
func keyFault(key string) error {
	if len(key) >= 1 && len(key) <= wire.MaxKey {
		return nil
	}
	return fmt.Errorf("a key must have 1 to %d bytes, this one has %d", wire.MaxKey, len(key))
}

// policyForCall returns the policy of a call, if its key and its options are valid.
func (l *Locker) policyForCall(ctx context.Context, key string, opts []CallOption) (*policy, error) {
	err := cmp.Or(l.checkCall(ctx), checkKey(key))
	if err != nil {
		return nil, err
	}
	return l.p.withCallOptions(opts)
}

// acquireAs acquires the key. If ctx runs under a lease on it, the error is errNested.
func (l *Locker) acquireAs(ctx context.Context, key string, try bool, p *policy, errNested error) (*Lease, error) {
	err := l.refuseNested(ctx, key, errNested)
	if err != nil {
		return nil, err
	}

	op := l.begin(ctx, key, try, p)
	a := acquisition{call: op.newCall(key, try), observed: op.end != nil}
	lease, err := a.run(op.ctx)
	return op.conclude(lease, a.out, err)
}

// refuseNested returns an error if ctx runs under a lease on the key: errNested, or errUnderPermit if the lease is on a
// slot of the key.
func (l *Locker) refuseNested(ctx context.Context, key string, errNested error) error {
	around := l.leaseAround(ctx, key)
	if around == nil {
		return nil
	}
	if around.attempt.p.isSlot() {
		errNested = errUnderPermit
	}
	refused := newOpError(OpAcquire, key, errNested)
	refused.Held = HeldByCaller
	return refused
}

// metadataFor returns what the lease of a call carries. The observer gives the hint in the context that it derived.
func (p *policy) metadataFor(ctx context.Context) string {
	if p.observer.Hint == nil {
		return p.metadata
	}
	hint := p.observer.Hint(ctx)
	isUsable := hint != "" && len(hint) <= wire.MaxHint
	if !isUsable {
		return p.metadata
	}
	return wire.Holder{Note: p.note, Name: p.name, Hint: hint}.Carried()
}

var (
	errByCaller     = fmt.Errorf("%w: the caller itself, under whose lease it asks again", ErrHeld)
	errNotReentrant = fmt.Errorf("%w; core.Reentrant(true) lets Do and DoAll run under that lease", errByCaller)

	errNoSecondLease = fmt.Errorf(
		"%w; only Do and DoAll can run under that lease (core.Reentrant), "+
			"for the release or completion of a second would end it", errByCaller,
	)
)

// errUnderPermit is the error of a caller that has a permit of a semaphore, and asks for its key again.
var errUnderPermit = fmt.Errorf("%w: the caller itself, who has a permit of a semaphore on the key", ErrHeld)

// Holding returns the lease on key under which ctx runs, directly or through leases on other keys. To wait for key
// would then never end. The lease may be of l, of a Locker derived from it, or of the Locker from which it was
// derived. A lease that is over does not count. Neither does a permit of a semaphore (core/semaphore), because its
// holder is not alone.
func (l *Locker) Holding(ctx context.Context, key string) (*Lease, bool) {
	if !l.valid() || ctx == nil {
		return nil, false
	}
	lease := l.leaseAround(ctx, key)
	if lease == nil || lease.attempt.p.isSlot() {
		return nil, false
	}
	return lease, true
}

// leaseAround returns the lease on key, or on one of its slots, under which ctx runs; nil if there is none.
func (l *Locker) leaseAround(ctx context.Context, key string) *Lease {
	for c := leaseContextOf(ctx); c != nil; c = leaseContextOf(c.parent) {
		lease := c.lease
		isOnKey := lease.Key() == key || lease.attempt.p.slotOf == key
		if lease.attempt.e == l.e && isOnKey && lease.ctx.Err() == nil {
			return lease
		}
	}
	return nil
}
