package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A call is a call of Acquire, and what its attempts have in common.
type call struct {
	e        *engine
	p        *policy
	key      string
	resource string // the key's name in Redis, and in the local queue
	parent   context.Context
	tryOnly  bool
	carries  string    // what the lease carries
	since    time.Time // when it began, where it had to wait for its turn in this process
	wait     *wait     // from the first attempt on that failed; nil = none has
}

// newLease makes a lease to be, with an attempt of its own.
func (c *call) newLease() *Lease {
	lease := &Lease{engine: c.e, place: -1}
	lease.attempt.init(&c.e.ensemble, c.p, c.key, c.resource, c.carries)
	lease.ctx.lease, lease.ctx.parent = lease, c.parent
	if lease.waits = !c.tryOnly; lease.waits && c.wait == nil && !c.since.IsZero() {
		c.wait = newWait(lease.lock.Waiter(), wire.StampOf(c.since), quorum(len(c.e.nodes)))
	}
	lease.wait, lease.queued = c.wait, c.wait != nil
	return lease
}
