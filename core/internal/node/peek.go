package node

// Idle reports whether nothing is under way, and a goroutine waits for the next batch of the first bucket. It is for
// measurements of what a request costs.
func (n *Node) Idle() bool {
	l := n.lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.underWay == 0 && l.waits.Load()
}
