package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Leases are the leases on all keys of one call of AcquireAll. They have one context, which ends as soon as any of them
// ends. They are safe for concurrent use.
type Leases struct {
	p      *policy         // of the call
	parent context.Context // the caller's
	leases []*Lease        // sorted by key

	// shared is cancelled with the first of the leases that ends. All of them use it, so no lease of the set has a live
	// context after that, and none is renewed.
	shared context.Context
	cancel context.CancelCauseFunc
	ctx    *setContext // nil until the set is complete

	onEnd func(Outcome) // ends the observer's OpHold; nil without an observer
}

// newLeases returns a set without leases, for a caller with this context.
func newLeases(p *policy, parent context.Context) *Leases {
	s := &Leases{p: p, parent: parent}
	s.shared, s.cancel = context.WithCancelCause(parent)
	return s
}

// innermost returns the context under which the next lease of the set runs, as far as its values are concerned: that of
// the lease before it. So Holding finds each of the leases.
func (s *Leases) innermost() context.Context {
	if len(s.leases) == 0 {
		return s.parent
	}
	return &s.leases[len(s.leases)-1].ctx
}

// complete makes the leases that were acquired a set: its context is live, and MaxHold begins.
func (s *Leases) complete() {
	s.ctx = &setContext{&s.leases[len(s.leases)-1].ctx, s.leases}
	if s.p.maxHold == 0 {
		return
	}
	for _, lease := range s.leases {
		lease.startMaxHold(s.p.maxHold)
	}
}

// lostSome reports whether one of the leases was lost before the set was complete.
func (s *Leases) lostSome() bool { return len(s.leases) > 0 && s.leases[0].Lost() != nil }

// leastValidity returns the time until the context of the set ends unless leases are renewed.
func (s *Leases) leastValidity() time.Duration {
	least := s.leases[0].remaining()
	for _, lease := range s.leases {
		least = min(least, lease.remaining())
	}
	return least
}

// Context returns the context that ends as soon as any of the leases ends. Its cause is [ErrLost] (as an *OpError that
// names the key and says why), [ErrReleased], or the cause of the context given to AcquireAll. Err and Done look at the
// validity of every lease, so they report the end at once if the process was paused or suspended past it. Contexts
// derived from it end when a timer fires.
//
// [Locker.Holding] finds the lease on each key in it. The context of such a lease, as [Lease.Context] returns it, ends
// with the set, too, but looks only at the validity of that lease.
func (s *Leases) Context() context.Context {
	if !s.valid() {
		return new(Lease).Context()
	}
	return s.ctx
}

// Keys returns the keys, sorted and without duplicates.
func (s *Leases) Keys() []string {
	if !s.valid() {
		return nil
	}
	keys := make([]string, len(s.leases))
	for i, lease := range s.leases {
		keys[i] = lease.Key()
	}
	return keys
}

// Lost returns why the set ended before its holder released it: an *OpError matching [ErrLost], with the key of the
// lease that was lost first. It returns nil while all leases are held, and if the set ended for another reason, as
// [Lease.Lost] does.
func (s *Leases) Lost() error {
	if !s.valid() || s.ctx.Err() == nil {
		return nil
	}
	return s.leases[0].Lost()
}

// Release frees all keys at once. The context of the set ends before any request is sent. A Cooldown applies to each of
// the keys.
//
// Each lease is released as by [Lease.Release], and the error joins their errors: a key whose lease was lost is in it
// with ErrLost, while the others are released all the same. Release may be repeated. To release a single lease ends the
// context of the whole set, and the other keys stay taken until the set is released.
func (s *Leases) Release(ctx context.Context, opts ...ReleaseOption) error {
	cooldown, err := cooldownOf(opts)
	err = cmp.Or(checkCall(ctx, s.valid(), errNoLeases), err)
	if err != nil {
		return err
	}
	return errors.Join(s.release(ctx, cooldown)...)
}

var errNoLeases = fmt.Errorf("lockkit: %w: the Leases were not made by AcquireAll", ErrInvalid)

// valid reports whether the set was made by AcquireAll.
func (s *Leases) valid() bool { return s != nil && s.p != nil }

// release frees all keys, and returns the error of each.
func (s *Leases) release(ctx context.Context, cooldown time.Duration) []error {
	// Err reads the clocks, so that a lease whose time is over ends as lost before the set ends as released.
	s.ctx.Err()
	s.p.cancelContext(s.cancel, ErrReleased)

	// The observer learns of the end of the hold before it learns of the release.
	lostBefore := s.hasLostLease()
	s.observeEnd(Outcome{Err: ErrReleased})

	// A repeated call that has nothing to ask is not told.
	var end func(Outcome)
	if !s.isReleased() {
		ctx, end = s.p.observeSet(ctx, OpRelease, s.Keys(), false)
	}

	errs := releaseTogether(ctx, s.leases, cooldown)
	if end != nil {
		out := releaseOutcome(errs)
		out.Unnoticed = out.Reason != "" && !lostBefore
		end(out)
	}
	return errs
}

// releaseTogether releases leases at the same time, so that their requests share batches, and returns the error of
// each.
func releaseTogether(ctx context.Context, leases []*Lease, cooldown time.Duration) []error {
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	for i, lease := range leases {
		all.Go(func() { errs[i] = lease.Release(ctx, Cooldown(cooldown)) })
	}
	all.Wait()
	return errs
}

// releaseOutcome returns the outcome of the release of a set. A loss counts for more than a release that was not
// confirmed.
func releaseOutcome(errs []error) (out Outcome) {
	out.Err = errors.Join(errs...)
	for _, err := range errs {
		op, failed := errors.AsType[*OpError](err)
		counts := failed && (out.Nodes == nil || out.Reason == "" && op.Reason != "")
		if counts {
			out.Reason = op.Reason
			out.Nodes = op.Nodes
		}
	}
	return out
}

// hasLostLease reports whether one of the leases is known to have been lost.
func (s *Leases) hasLostLease() bool {
	return slices.ContainsFunc(s.leases, func(lease *Lease) bool {
		lease.attempt.mu.Lock()
		defer lease.attempt.mu.Unlock()
		return lease.knownLoss() != ""
	})
}

// isReleased reports whether a quorum has confirmed the release of every lease.
func (s *Leases) isReleased() bool {
	for _, lease := range s.leases {
		lease.attempt.mu.Lock()
		isConfirmed := lease.releaseConfirmed
		lease.attempt.mu.Unlock()
		if !isConfirmed {
			return false
		}
	}
	return true
}

// observeHold reports the hold of all keys to the observer. The hold ends once, with the first lease that ends.
func (s *Leases) observeHold() {
	_, end := s.p.observeSet(s.parent, OpHold, s.Keys(), false)
	if end == nil {
		return
	}

	// The observer is called without a lock, because it may be slow.
	var isTold atomic.Bool
	s.onEnd = func(out Outcome) {
		out.Token = 0
		if isTold.CompareAndSwap(false, true) {
			end(out)
		}
	}
	for _, lease := range s.leases {
		lease.observeEndBy(s.observeEnd)
	}
}

// observeEnd reports the end of a lease to the observer, as the end of the hold of all keys. If a lease of the set was
// lost, the hold ends with that loss, which is reported in the background, and not with the releases of the others.
func (s *Leases) observeEnd(out Outcome) {
	isRelease := out.Err == ErrReleased //nolint:errorlint // the sentinel itself
	afterLoss := isRelease && s.hasLostLease()
	if s.onEnd != nil && !afterLoss {
		s.onEnd(out)
	}
}

// A setContext is the context of a set of leases: that of its last lease, which also looks at the validity of the
// others.
type setContext struct {
	*leaseContext
	leases []*Lease
}

// Err reads the clock for every lease, because no timer may have fired yet after a pause.
func (c *setContext) Err() error {
	for _, lease := range c.leases {
		err := lease.ctx.Err()
		if err != nil {
			return err
		}
	}
	return nil
}

// Done reads the clock as Err does.
func (c *setContext) Done() <-chan struct{} {
	c.Err()
	return c.Context.Done()
}
