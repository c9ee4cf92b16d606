package core

import "time"

// Guarantee 1 needs the longest max TTL of all processes: a node that lost its memory grants nothing for so long. A user
// with failovers beyond the default sets WithMaxTTL, in one process after the other, so each learns it from the nodes.

// learn notes the longest lease in use, as a node knows it. From then on all requests bring it along, so that
// nodes that have forgotten it wait for it, too. It reports whether an operator is to be told: the first time.
func (e *ensemble) learn(longest time.Duration, p *policy) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.head.Load()
	if longest <= known.MaxTTL {
		return false
	}
	e.head.Store(known.WithMaxTTL(longest))
	return known.MaxTTL == p.maxTTL
}

// outdated reports whether a longer lease is known by now than when the round began.
func (r *round) outdated() bool { return r.e.head.Load() != r.head }

func (p *policy) tellLongest(longest time.Duration, from *node) {
	p.logger.Warn("lockkit: a process uses, or has used, a longer max TTL: set WithMaxTTL to the longest in all of them",
		from.attrs(), "longest", longest, "own", p.maxTTL)
}
