package node

import "github.com/lockkit/lockkit/core/internal/clock"

// What tests of core look at that nobody else does.

// InFlight is how many requests are booked.
func (n *Node) InFlight() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inFlight
}

// Idle reports whether nothing is under way, and a goroutine waits for the next batch of the first bucket.
func (n *Node) Idle() bool { return n.InFlight() == 0 && n.lanes[0].waits.Load() }

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
