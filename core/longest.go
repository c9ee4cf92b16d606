package core

import "time"

// Guarantee 1 needs the longest max TTL of all processes: a node that lost its memory grants nothing for so long. A user
// with failovers beyond the default sets WithMaxTTL, in one process after the other, so each learns it from the nodes.

// longestLease is the longest lease in use, as far as this process knows, and for how long an idle fencing counter is kept
// because of it: as arguments of scripts, in ms.
func (e *ensemble) longestLease(p *policy) (maxTTL, idle any) {
	if learnt := e.longest.Load(); learnt != nil {
		return learnt.maxTTL, learnt.idle
	}
	return p.static[maxTTLArg], p.static[idleArg]
}

// A longestLease is what a process learns from nodes: boxed once.
type longestLease struct {
	d            time.Duration
	maxTTL, idle any
}

// learn notes the longest lease in use, as a node knows it. From then on all requests bring it along, so that
// nodes that have forgotten it wait for it, too. It reports whether an operator is to be told: the first time.
func (e *ensemble) learn(longest time.Duration, p *policy) (first bool) {
	e.mu.Lock()
	known := e.longest.Load()
	news := longest > p.maxTTL && (known == nil || longest > known.d)
	if news {
		e.longest.Store(&longestLease{longest, longest.Milliseconds(), idleLife(longest).Milliseconds()})
	}
	e.mu.Unlock()
	return news && known == nil
}

// outdated reports whether a longer lease is known by now than the round named to the nodes.
func (r *round) outdated() bool {
	learnt := r.e.longest.Load()
	return learnt != nil && learnt.maxTTL != r.args[wallArg(r.args)+1+maxTTLArg]
}

func (p *policy) tellLongest(longest time.Duration, from *node) {
	p.logger.Warn("lockkit: a process uses, or has used, a longer max TTL: set WithMaxTTL to the longest in all of them",
		from.attrs(), "longest", longest, "own", p.maxTTL)
}
