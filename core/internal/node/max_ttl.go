package node

import "time"

// Guarantee 1 depends on the longest max TTL of all processes: for this long, a node that lost its memory grants
// nothing. A user whose failovers take longer than the default sets WithMaxTTL, in one process after the other, so
// each process learns the value from the nodes.

// LearnMaxTTL stores the longest max TTL in use, as a node reported it. All later requests carry it, so nodes that have
// forgotten the value observe it, too. LearnMaxTTL reports whether this process learns of a longer max TTL than its own
// for the first time, so that an operator must be notified.
func (g *Group) LearnMaxTTL(longest time.Duration) (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.Head.Load()
	if longest <= known.MaxTTL {
		return false
	}
	g.Head.Store(known.WithMaxTTL(longest))
	return known.MaxTTL == g.Conf.MaxTTL
}

func (g *Group) logLongest(longest time.Duration, from *Node) {
	const text = "lockkit: a process uses, or has used, a longer max TTL: set WithMaxTTL to the longest in all of them"
	g.Callbacks.Post(&from.logCalls, func() {
		g.Conf.Logger.Warn(text, from.logAttrs(), "longest", longest, "own", g.Conf.MaxTTL)
	})
}
