package node

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A request is what a round asks of one node.
type request struct {
	r *Round
	b *breaker // that has admitted it

	losses int  // how often the connection broke that it was sent over
	most   int  // bound of the size of its batch; 0 = none. A request that was lost travels with fewer than before.
	again  bool // it was lost, and waits to be sent once more
}

// weight is how much of a batch the request takes. A request that must travel alone takes all of it.
func (q request) weight() int {
	if q.r.op.Alone() {
		return MaxBatch
	}
	return 1 + q.r.Bulk/bulkOfOne
}

func (q request) goesAgain(now clock.Instant) bool {
	r := q.r
	if r.op.Alone() || r.op == wire.OpAcquire {
		return false
	}
	return q.losses < maxLosses && now.Since(r.Sent) < r.Timeout
}

// worth is how long a request may wait to be sent, from when the round began. What ends an attempt is not sent when the lease
// has run out on the node, or it would pile up for a node that hangs. Nothing waits without a bound.
func (r *Round) worth() time.Duration {
	switch r.op {
	case wire.OpAcquire: // half the time is for the answer
		return r.Timeout / 2
	case wire.OpRelease, wire.OpComplete:
		return max(r.Lease, r.Timeout)
	default:
		return r.Timeout
	}
}

// stale reports whether a request has waited for so long that it is not to be sent any more.
func (r *Round) stale(now clock.Instant) bool { return now.Since(r.Sent) > r.worth() }

// drop votes for a node that is not asked.
func (r *Round) drop(n *Node, b *breaker, now clock.Instant) {
	v := quorum.Said(wire.CircuitOpen, goredis.ErrOverloaded)
	n.leave(b, 0, v.Err)
	r.hear(n.Index, v)
	if r.stale(now) { // else the attempt or the lease has ended
		r.tellReply(n, &v)
	}
}

// departs notes that the request to a node is sent, and reports whether it is to be. It is not where the asker has ended, where
// it comes too late, or where the node has its vote already, for not having been asked in time: nobody would release what it
// grants then.
func (r *Round) departs(node int, now clock.Instant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stale(now) {
		return false
	}
	if !r.ends() && r.Votes[node].Verdict != wire.Pending {
		return false
	}
	if r.asker != nil {
		sends := r.asker.Sends(r.op, node)
		if !sends {
			return false
		}
	}
	r.queued = r.queued.Without(node)
	return true
}

// ends reports whether the round ends an attempt: it is sent also when the round is over.
func (r *Round) ends() bool { return r.op != wire.OpAcquire && r.op != wire.OpRenew }
