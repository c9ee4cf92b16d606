package core

import "time"

// longest is the longest lease in use, as far as this process knows, and for how long an idle fencing counter is kept
// because of it: as arguments of scripts, in ms.
func (l *Locker) longest() (maxTTL, idle any) {
	if learnt := l.e.longest.Load(); learnt != nil {
		return learnt.maxTTL, learnt.idle
	}
	return l.p.static[maxTTLArg], l.p.static[idleArg]
}

// A longestLease is what a process learns from nodes: boxed once.
type longestLease struct {
	d            time.Duration
	maxTTL, idle any
}

// learn notes the longest lease in use, as a node knows it. From then on all requests bring it along, so that
// nodes that have forgotten it wait for it, too. It reports whether an operator is to be told: the first time.
func (l *Locker) learn(longest time.Duration) (first bool) {
	e := l.e
	e.mu.Lock()
	known := e.longest.Load()
	news := longest > l.p.maxTTL && (known == nil || longest > known.d)
	if news {
		e.longest.Store(&longestLease{longest, longest.Milliseconds(), idleLife(longest).Milliseconds()})
	}
	e.mu.Unlock()
	return news && known == nil
}

func (l *Locker) tellLongest(longest time.Duration, from *node) {
	l.p.logger.Warn("lockkit: a process uses, or has used, a longer max TTL: set WithMaxTTL to the longest in all of them",
		from.attrs(), "longest", longest, "own", l.p.maxTTL)
}
