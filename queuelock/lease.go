package queuelock

import (
	"context"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
)

// A lease is one lease of a delivery: on a lock, or on a slot of a semaphore. The zero value holds nothing; its methods
// do nothing.
type lease struct {
	lock   *core.Lease
	permit *semaphore.Permit // with WithConcurrency
}

// context returns the context that ends with the lease.
func (l lease) context() context.Context {
	if l.permit != nil {
		return l.permit.Context()
	}
	return l.lock.Context()
}

// lost returns why the lease was lost, or nil.
func (l lease) lost() error {
	if l.permit != nil {
		return l.permit.Lost()
	}
	return l.lock.Lost()
}

// token returns the fencing token.
func (l lease) token() uint64 {
	if l.permit != nil {
		return l.permit.FencingToken()
	}
	return l.lock.FencingToken()
}

// release releases the lease. If the nodes do not confirm the release, core logs it and tries again until the lease
// expires.
func (l lease) release(ctx context.Context, opts ...core.ReleaseOption) {
	if l.permit != nil {
		l.permit.Release(ctx, opts...)
		return
	}
	l.lock.Release(ctx, opts...)
}
