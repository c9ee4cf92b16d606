package semaphore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/slot"
)

// A Permit is the right to act on a key as one of at most k, until the permit's context ends. It is a lease on one of the
// key's slots, renewed like any other lease. It is safe for concurrent use.
type Permit struct {
	lease *core.Lease
	slot  int
	ctx   permitContext

	memory      *slot.Memory
	key         string
	leaveOnce   sync.Once
	isReleasing atomic.Bool // a Release is under way, and leaves the slot when it is over
}

// newPermit returns the permit for a slot that was granted.
func newPermit(memory *slot.Memory, key string, g grant) *Permit {
	p := &Permit{
		lease:  g.lease,
		slot:   g.slot,
		memory: memory,
		key:    key,
	}
	p.ctx = permitContext{g.lease.Context(), p}

	// A holder may never release a permit that was lost, or that ended with its context.
	context.AfterFunc(g.lease.Context(), func() {
		if !p.isReleasing.Load() {
			p.leave(false)
		}
	})
	return p
}

// leave records that this process does not use the slot any more. If it was given back, the next caller asks for it.
func (p *Permit) leave(givenBack bool) {
	p.leaveOnce.Do(func() { p.memory.Leave(p.key, p.slot, givenBack) })
}

// valid reports whether the permit was made by this package.
func (p *Permit) valid() bool { return p != nil && p.lease != nil }

// Slot returns the number of the permit's slot, from 0 to k-1. No two live permits for a key have the same. Use it to
// number the things that the holders share: the connections of a pool, the workers of a customer.
func (p *Permit) Slot() int {
	if !p.valid() {
		return 0
	}
	return p.slot
}

// SlotKey returns the key of the slot's lock, which is the key itself for slot 0, and core.Key("slot", key, "1") for slot 1.
// Fencing tokens of permits and leases that have the same key prefix and the same such key can be compared. It returns ""
// if the Permit was not made by Acquire.
func (p *Permit) SlotKey() string {
	if !p.valid() {
		return ""
	}
	return p.lease.Key()
}

// KeyPrefix returns the prefix of the Locker that acquired the permit, as [core.Lease.KeyPrefix] does.
func (p *Permit) KeyPrefix() string {
	if !p.valid() {
		return ""
	}
	return p.lease.KeyPrefix()
}

// ValidUntil returns the local time at which the context ends unless a renewal succeeds before, as
// [core.Lease.ValidUntil] does. Until then no other caller holds the slot. It returns the zero time if the Permit was not
// made by Acquire.
func (p *Permit) ValidUntil() time.Time {
	if !p.valid() {
		return time.Time{}
	}
	return p.lease.ValidUntil()
}

// Context returns the context that ends with the permit, as [core.Lease.Context] does. Its cause is [core.ErrLost],
// [core.ErrReleased] or the cause of the context given to Acquire. If a slot is lost, the context of its holder alone ends.
func (p *Permit) Context() context.Context {
	if !p.valid() {
		return (*core.Lease)(nil).Context()
	}
	return p.ctx
}

// Lost returns why the permit ended before its holder ended it, as [core.Lease.Lost] does; nil if it did not.
func (p *Permit) Lost() error {
	if !p.valid() {
		return nil
	}
	return p.lease.Lost()
}

// FencingToken returns a number greater than every token reported for the slot before. It says nothing about other slots:
// a later holder in another slot may have a smaller token. A store that rejects late writes must keep the largest
// token for each slot number, and compare a write only with the token of the same slot.
func (p *Permit) FencingToken() uint64 {
	if !p.valid() {
		return 0
	}
	return p.lease.FencingToken()
}

// Release gives the permit back. It is [core.Lease.Release] of the slot, with the same errors: with [core.Cooldown], the
// slot stays taken for that long, so at most k permits are granted in any such time.
func (p *Permit) Release(ctx context.Context, opts ...core.ReleaseOption) error {
	if !p.valid() {
		return errNoPermit
	}

	p.isReleasing.Store(true)
	defer p.endRelease()
	return p.lease.Release(ctx, opts...)
}

var errNoPermit = fmt.Errorf("lockkit: %w: the Permit was not made by Acquire", core.ErrInvalid)

// releaseAfter releases the permit after the function of Do has returned err. It returns the error of Do.
func (p *Permit) releaseAfter(ctx context.Context, err error) error {
	p.isReleasing.Store(true)
	defer p.endRelease()
	return slot.ReleaseAfter(ctx, p.lease, err)
}

// endRelease leaves the slot after a release. If the arguments of the release were invalid, the permit goes on.
//
// A caller of this process that asked for the slot before the release is over would find it taken.
func (p *Permit) endRelease() {
	p.isReleasing.Store(false)

	isOver := p.lease.Context().Err() != nil
	if isOver {
		p.leave(p.lease.Lost() == nil)
	}
}

// FromContext returns the innermost permit under which ctx runs. [core.FromContext] does not return the lease of a
// permit, because code that asks for a lease relies on being alone.
func FromContext(ctx context.Context) (*Permit, bool) {
	p, ok := ctx.Value(permitKey{}).(*Permit)
	return p, ok
}

// permitKey is the key under which a permitContext returns its permit.
type permitKey struct{}

// A permitContext is the context of a permit: the context of its lease, in which FromContext finds the permit.
type permitContext struct {
	context.Context
	permit *Permit
}

// Value returns the permit for permitKey.
func (c permitContext) Value(key any) any {
	if key == (permitKey{}) {
		return c.permit
	}
	return c.Context.Value(key)
}
