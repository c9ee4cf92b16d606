package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
)

// Where a process has somebody in line for a key, its release and their request leave in one batch: the key goes from
// hand to hand in one round trip. They obey the queues of the nodes like anybody else. These lines and a
// part of the line pay by 1.3 times the holds per second of a hot key next door, and twice as many over a network.

// successor is the next contender of this process, whose turn it is from now on; nil if there is none, or nothing is to
// be asked together with a release.
func (lease *Lease) successor(was leaseState, stay time.Duration) *queue.Turn {
	if e := lease.engine; was == leaseHeld && stay == 0 && !e.IsClosing() {
		return e.lines.Next(lease.turn())
	}
	return nil
}

// handOn sends the release, and has the next contender's request leave with it.
func (lease *Lease) handOn(next *queue.Turn, release *node.Round) {
	defer close(next.Come)
	next.Asked = true
	next.Ask(release)
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
