package node

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A request is a round's request to one node.
type request struct {
	round   *Round
	breaker *breaker // has admitted the request

	retries  int  // how often the connection broke over which it was sent
	maxBatch int  // limits the size of its batch; 0 means no limit. A retry travels with fewer requests than before.
	retried  bool // its connection broke, and a copy waits to be sent
}

// weight returns the part of a batch that the request fills. A request that must travel alone fills all of it.
func (q request) weight() int {
	if q.round.op.Alone() {
		return MaxBatch
	}
	return 1 + q.round.PayloadSize/bytesPerUnit
}

// canRetry reports whether the request may be sent again after its connection broke.
func (q request) canRetry(now clock.Instant) bool {
	r := q.round
	if r.op.Alone() || r.op == wire.OpAcquire {
		return false
	}
	return q.retries < maxRetries && now.Since(r.Sent) < r.Timeout
}

// maxDelay returns how long a request may wait to be sent, from the start of the round. The end of an attempt is
// not sent after the lease has run out on the node, because such requests would pile up for a node that hangs.
// Every request has a limit.
func (r *Round) maxDelay() time.Duration {
	switch r.op {
	case wire.OpAcquire: // half of the timeout is left for the answer
		return r.Timeout / 2
	case wire.OpRelease, wire.OpComplete:
		return max(r.LeaseTTL, r.Timeout)
	default:
		return r.Timeout
	}
}

// isStale reports whether a request has waited too long to be sent.
func (r *Round) isStale(now clock.Instant) bool {
	return now.Since(r.Sent) > r.maxDelay()
}

// reject votes for a node to which the request is not sent.
func (r *Round) reject(n *Node, b *breaker, now clock.Instant) {
	v := quorum.NewVote(wire.CircuitOpen, goredis.ErrOverloaded)
	n.end(b, 0, v.Err)
	r.addVote(n.Index, v)

	// A request that is not stale is rejected because its attempt or lease has ended, or because the node was already
	// counted. Neither is news for the observer.
	switch {
	case r.isStale(now):
		r.observeReply(n, &v)
	case !r.AskTroubled:
		n.returnProbe(b)
	}
}

// startSend records that the request to a node is sent, and reports false if it must not be: the request is stale,
// the attempt or the lease has ended, or the node was already counted as not asked. A grant of such a node would
// never be released.
func (r *Round) startSend(node int, now clock.Instant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isStale(now) {
		return false
	}
	if !r.endsAttempt() && r.Votes[node].Verdict != wire.Pending {
		return false
	}

	// The asker records the request only if it is really sent.
	if r.asker != nil {
		ok := r.asker.StartSend(r.op, node)
		if !ok {
			return false
		}
	}

	r.queued = r.queued.Without(node)
	return true
}

// endsAttempt reports whether the requests are sent even after the round is over, because they end an attempt.
// Requests that belong to no attempt count as such, too: only an acquisition and a renewal are pointless by then.
func (r *Round) endsAttempt() bool {
	return r.op != wire.OpAcquire && r.op != wire.OpRenew
}
