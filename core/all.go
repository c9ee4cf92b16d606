package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockkit/lockkit/internal/faults"
)

// maxKeys limits the keys of one call.
const maxKeys = 64

// DoAll runs fn while holding all keys, in whatever order they are given, and releases them when fn returns or panics.
// It acquires them as AcquireAll does. fn runs on the caller's goroutine with the context of the set, which ends with
// cause ErrLost as soon as any of the leases is lost. [Locker.Holding] finds the lease on each key in that context,
// and so the fencing token for the rows that the key protects. [FromContext] finds only one of them: on the last key,
// in sorted order.
//
// The error is the error of fn or of AcquireAll. If a lease was lost while fn ran, the error also matches ErrLost, even
// if fn returned nil. A release that could not be confirmed is logged, as in Do.
//
// If ctx runs under a lease on one of the keys, the error matches ErrHeld at once. With [Reentrant], such keys are left
// out: fn runs under the lease that ctx holds, too, and DoAll does not release it.
func (l *Locker) DoAll(ctx context.Context, keys []string, fn func(ctx context.Context) error, opts ...CallOption) error {
	return l.doAll(ctx, keys, false, fn, opts)
}

// TryDoAll is DoAll without waiting, as TryAcquireAll is to AcquireAll.
func (l *Locker) TryDoAll(ctx context.Context, keys []string, fn func(ctx context.Context) error, opts ...CallOption) error {
	return l.doAll(ctx, keys, true, fn, opts)
}

// AcquireAll returns leases on all keys: at most 64, in any order; a key that is named twice counts once. If it fails,
// it holds none of them. The error names the key that it did not get, and is that of Acquire. If there is no key or an
// invalid one, the error matches ErrInvalid, and nothing was asked.
//
// All keys are asked for at once, without waiting. If one is not free, AcquireAll keeps the keys that sort before it,
// gives the others back, and waits for it in its queue, as Acquire does; then it asks for the rest. So a call holds
// only keys that sort before the one that it waits for. Calls that hold nothing else never wait for one another in a
// circle, and none starves. Two calls that hold another key meanwhile can wait for each other until a context ends:
// Do(a) around DoAll(b) beside Do(b) around DoAll(a). Name all keys in one call, or set MaxWait.
//
// A key that is held while its holder waits for a later one delays its other callers, too, so hold few keys at once,
// and for a short time. If a lease is lost during the wait, AcquireAll begins again.
//
// MaxWait limits the whole wait, MaxHold counts from the grant of the last key, and Detached holds for all leases.
// Leases of a set cannot be completed, see [Lease.Complete]. AcquireAll is not reentrant, as Acquire is not.
func (l *Locker) AcquireAll(ctx context.Context, keys []string, opts ...CallOption) (*Leases, error) {
	return l.acquireAll(ctx, keys, false, opts)
}

// TryAcquireAll is AcquireAll without waiting for a holder. The error matches ErrHeld if one of the keys is held, or
// is not free for TryAcquire for another reason. If several calls ask for overlapping sets at the same time, it may be
// that none of them gets its keys.
func (l *Locker) TryAcquireAll(ctx context.Context, keys []string, opts ...CallOption) (*Leases, error) {
	return l.acquireAll(ctx, keys, true, opts)
}

// acquireAll is AcquireAll, or TryAcquireAll if try.
func (l *Locker) acquireAll(ctx context.Context, keys []string, try bool, opts []CallOption) (*Leases, error) {
	keys, p, err := l.policyForSet(ctx, keys, opts)
	if err != nil {
		return nil, err
	}
	return l.acquireSet(ctx, keys, try, p, errNoSecondLease)
}

// doAll is DoAll, or TryDoAll if try.
func (l *Locker) doAll(
	ctx context.Context, keys []string, try bool, fn func(context.Context) error, opts []CallOption,
) (err error) {
	if fn == nil {
		return errNoFunction
	}
	keys, p, err := l.policyForSet(ctx, keys, opts)
	if err != nil {
		return err
	}

	if p.reentrant {
		keys, fn = underHeldLeases(ctx, l, keys, fn)
	}
	if len(keys) == 0 {
		return fn(ctx)
	}

	set, err := l.acquireSet(ctx, keys, try, p, errNotReentrant)
	if err != nil {
		return err
	}
	defer func() { err = set.releaseAfter(ctx, err) }()
	return fn(set.Context())
}

// underHeldLeases returns the keys on which ctx holds no lease, and a function that runs fn under the leases that ctx
// holds on the others.
func underHeldLeases(
	ctx context.Context, l *Locker, keys []string, fn func(context.Context) error,
) (missing []string, run func(context.Context) error) {
	run = fn
	for _, key := range keys {
		outer, held := l.Holding(ctx, key)
		if !held {
			missing = append(missing, key)
			continue
		}
		inner := run
		run = func(ctx context.Context) error { return runNested(ctx, outer, inner) }
	}
	return missing, run
}

var errNoKeys = fmt.Errorf("lockkit: %w: there are no keys", ErrInvalid)

// policyForSet returns the keys of a set, sorted and without duplicates, and the policy of the call, if the keys and
// the options are valid.
func (l *Locker) policyForSet(ctx context.Context, keys []string, opts []CallOption) ([]string, *policy, error) {
	err := cmp.Or(l.checkCall(ctx), checkKeys(keys))
	if err != nil {
		return nil, nil, err
	}

	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	if len(keys) > maxKeys {
		return nil, nil, fmt.Errorf("lockkit: %w: there are %d keys, may be at most %d", ErrInvalid, len(keys), maxKeys)
	}

	p, err := l.p.withCallOptions(opts)
	return keys, p, err
}

// checkKeys returns an error that names every invalid key by its index.
func checkKeys(keys []string) error {
	if len(keys) == 0 {
		return errNoKeys
	}

	keyFaults := make([]error, len(keys))
	for i, key := range keys {
		keyFaults[i] = keyFault(key)
	}
	var f faults.List
	f.AddElements("key", keyFaults)
	if f != nil {
		return fmt.Errorf("lockkit: %w: %w", ErrInvalid, errors.Join(f...))
	}
	return nil
}

// acquireSet acquires all keys. If ctx runs under a lease on one of them, the error is errNested.
func (l *Locker) acquireSet(
	ctx context.Context, keys []string, try bool, p *policy, errNested error,
) (*Leases, error) {
	for _, key := range keys {
		err := l.refuseNested(ctx, key, errNested)
		if err != nil {
			return nil, err
		}
	}

	g := newGathering(ctx, l.e, keys, try, p)
	ctx, end := p.observeSet(ctx, OpAcquire, keys, try)
	g.metadata = p.metadataFor(ctx)

	set, err := g.run(ctx)
	if p.observer.Start == nil {
		return set, err
	}

	// If the observer ends the goroutine, the caller does not get the leases. Then they are released.
	unreturned := set
	defer func() { unreturned.Release(ctx) }()
	if set != nil {
		set.observeHold()

		// Close may have ended the leases while the observer was told of them, as in acquireAs.
		endedByClose := l.e.IsClosing() && set.Lost() != nil
		if endedByClose {
			set, err = nil, newOpError(OpAcquire, keys[0], ErrClosed)
		}
	}
	if end != nil {
		g.out.Err = err
		end(g.out)
	}
	unreturned = nil
	return set, err
}

// releaseAfter releases the leases, and joins the error of the function that ran under them with the errors of losses.
func (s *Leases) releaseAfter(ctx context.Context, err error) error {
	var losses []error
	for _, released := range s.release(ctx, 0) {
		if errors.Is(released, ErrLost) {
			losses = append(losses, released)
		}
	}
	if losses == nil {
		return err
	}
	return joinLoss(err, errors.Join(losses...), s.parent.Err() != nil)
}
