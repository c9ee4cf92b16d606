package node

import (
	"sync/atomic"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// What tests of core look at, and set, that nobody else does.

// InFlight is how many requests are booked.
func (n *Node) InFlight() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inFlight
}

// Idle reports whether nothing is under way, and a goroutine waits for the next batch of the first bucket.
func (n *Node) Idle() bool { return n.InFlight() == 0 && n.lanes[0].waits.Load() }

// Fault is why the server is unfit.
func (n *Node) Fault() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fault
}

// SetFault makes the server unfit, or fit.
func (n *Node) SetFault(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = err
}

// Failures is how many requests about keys of a bucket have failed in a row.
func (n *Node) Failures(bucket int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.breaker(bucket).failures
}

// Boards is how many of the requests that wait for their turn would be sent now; they are not.
func (n *Node) Boards(now clock.Instant) int {
	l := n.lanes[0]
	f := &batch{l: l}
	l.mu.Lock()
	l.urgent = f.load(l.urgent)
	l.asking = f.load(l.asking)
	l.mu.Unlock()
	f.filter(now)
	return len(f.requests)
}

// SetConnections has the node take its client for one of so many connections.
func (n *Node) SetConnections(count int) { n.Connections, n.breakers = count, make([]*breaker, 1) }

// FreeSlots is how many batches of acquisitions may be sent beside those under way.
func (n *Node) FreeSlots() int { return n.breaker(0).slots.free }

// RunID is that of the server, empty where it does not tell.
func (n *Node) RunID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runID
}

// Fit reports whether the server was examined, and is fit.
func (n *Node) Fit() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unsure == nil && n.fault == nil
}

// IsOver reports whether the round is.
func (r *Round) IsOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// Answered is when a node last answered.
func (g *Group) Answered() clock.Instant { return g.answered.Load() }

// SetBuckets gives the nodes as many guard buckets as a Cluster has, and stops looking after them.
func (g *Group) SetBuckets(buckets int) {
	g.Health.Stop()
	g.Keys = wire.NewKeyspace(g.Conf.Prefix, buckets, g.Conf.Guarded)
	g.Health.asked = make([]clock.AtomicInstant, buckets)
	for _, n := range g.Nodes {
		n.memories = make([]atomic.Pointer[string], buckets)
	}
}
