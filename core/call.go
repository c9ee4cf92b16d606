package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
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
	carries  string        // what the lease carries
	since    time.Time     // when it began, where it had to wait for its turn in this process
	wait     *queue.Waiter // from the first attempt on that failed; nil = none has
}

// newLease makes a lease to be, with an attempt of its own.
func (c *call) newLease() *Lease {
	lease := &Lease{place: -1}
	lease.attempt.init(c.e, c.p, c.key, c.resource, c.carries)
	lease.ctx.lease, lease.ctx.parent = lease, c.parent
	if lease.waits = !c.tryOnly; lease.waits && c.wait == nil && !c.since.IsZero() {
		c.wait = queue.NewWaiter(lease.lock.Waiter(), wire.StampOf(c.since), quorum.Of(len(c.e.Nodes)))
	}
	lease.wait, lease.queued = c.wait, c.wait != nil
	return lease
}

// A successor is a call in line for a key.
type successor struct {
	call
	ctx   context.Context
	turn  queue.Turn
	lease *Lease // that the nodes were asked for on its behalf
	asked *node.Round
}

// ask has the call's first request leave together with the release before it.
func (s *successor) ask(release *node.Round) {
	s.lease = s.newLease()
	s.asked = s.lease.acquiring(false)
	s.asked.Begin(s.ctx, quorum.All(len(s.e.Nodes)))
	node.Dispatch(release, s.asked)
}
