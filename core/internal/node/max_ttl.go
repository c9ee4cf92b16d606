package node

import "time"

// Guarantee 1 needs the longest max TTL of all processes: a node that lost its memory grants nothing for so long. A user
// with failovers beyond the default sets WithMaxTTL, in one process after the other, so each learns it from the nodes.

// Learn notes the longest lease in use, as a node knows it. From then on all requests bring it along, so that
// nodes that have forgotten it wait for it, too. It reports whether an operator is to be told: the first time.
func (g *Group) Learn(longest time.Duration) (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.Head.Load()
	if longest <= known.MaxTTL {
		return false
	}
	g.Head.Store(known.WithMaxTTL(longest))
	return known.MaxTTL == g.Conf.MaxTTL
}

func (g *Group) tellLongest(longest time.Duration, from *Node) {
	const text = "lockkit: a process uses, or has used, a longer max TTL: set WithMaxTTL to the longest in all of them"
	g.Callbacks.Post(&from.lines, func() {
		g.Conf.Logger.Warn(text, from.attrs(), "longest", longest, "own", g.Conf.MaxTTL)
	})
}
