package core

import "context"

// FromContext returns the innermost lease that ctx runs under.
func FromContext(ctx context.Context) (*Lease, bool) {
	c, ok := ctx.Value(leaseKey{}).(*leaseContext)
	if !ok {
		return nil, false
	}
	return c.lease, true
}

// leaseKey is the key under which a leaseContext returns itself.
type leaseKey struct{}

// A leaseContext is the context of a lease, or of a run under it. It has no deadline of the lease, because that one
// moves.
type leaseContext struct {
	context.Context // cancelled with the lease; nil until it is held
	parent          context.Context
	lease           *Lease
}

// Err reads the clock, because the timer may not have fired yet after a pause.
func (c *leaseContext) Err() error {
	if c.Context.Err() == nil {
		c.lease.expire()
	}
	return c.Context.Err()
}

// Done reads the clock as Err does.
func (c *leaseContext) Done() <-chan struct{} {
	c.Err()
	return c.Context.Done()
}

// Value returns c for leaseKey, so that FromContext and Holding find the lease.
func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}
