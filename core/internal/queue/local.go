// Package queue is who waits for a key: [Local] is the queue of this process, in which callers stand in line, and a [Waiter] is
// one call in the queues of the nodes, which tell it over the subscriptions of a [Board] when its turn has come.
package queue

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lockkit/lockkit/core/internal/node"
)

// Local let one contender per key out of this process at a time, first come, first served. Whoever has the
// turn contends for the key on the nodes, and keeps the turn for as long as its lease lasts. A W is why somebody else has it.
type Local[W any] struct {
	free  W             // why, where nobody knows: who has the turn was told nothing yet
	after func(why W) W // why, behind somebody who had to wait for that holder

	// The lock is held for a few steps only, whatever the length of a line. Callers that give up look at their line as
	// readers, and leave it without the lock, so that a crowd of them keeps no other key waiting.
	mu sync.RWMutex
	m  map[string]line[W] // an entry exists while somebody has the turn
}

// A Holder of a key says why others do not have it.
type Holder[W any] interface{ InTheWay() W }

// A line is small, since each lease that is held has one.
type line[W any] struct {
	holder  Holder[W] // nil while the one whose turn it is contends
	last    *W        // what it was told last, or whoever had the turn before; nil = nothing. It is not changed
	waiters []*Turn   // first come, first served; those that have given up stay until they are first, or the slice is full
}

// NewLocal makes an empty queue.
func NewLocal[W any](free W, after func(W) W) *Local[W] {
	return &Local[W]{free: free, after: after, m: map[string]line[W]{}}
}

// A Turn is what one in line waits for.
type Turn struct {
	Come  chan struct{}             // closed when it has
	Ask   func(release *node.Round) // asks the nodes, together with a release, before the one in line knows
	Asked bool                      // it was called

	fate atomic.Int32 // one of the fates; it leaves inLine once
}

// Whoever passes a turn on and the caller that gives up agree by one step on what becomes of the turn.
const (
	inLine  int32 = iota
	passed        // it is the caller's, or is about to be
	givenUp       // the caller has gone
)

// decide settles the fate of a turn that is in line, and reports whether it was.
func (t *Turn) decide(fate int32) bool { return t.fate.CompareAndSwap(inLine, fate) }

// gone reports whether the caller has given up.
func (t *Turn) gone() bool { return t.fate.Load() == givenUp }

// TryEnter takes the turn if it is free.
func (q *Local[W]) TryEnter(key string) bool { return q.join(key, nil) }

// join takes the turn if it is free; else t stands in line for it, unless it is nil.
func (q *Local[W]) join(key string, t *Turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, taken := q.m[key]
	if taken && t != nil {
		t.Come = make(chan struct{})
		if len(at.waiters) == cap(at.waiters) {
			at.waiters = present(at.waiters)
		}
		at.waiters = append(at.waiters, t)
	}
	q.m[key] = at
	return !taken
}

// present drops callers that have given up from a slice that is full. So their number is bounded by that of callers who were
// in line at one time, and each caller who joins pays for a constant number of them.
func present(all []*Turn) []*Turn {
	var n int
	for _, t := range all {
		if !t.gone() {
			n++
		}
	}
	waiting := make([]*Turn, 0, 2*n)
	for _, t := range all {
		if !t.gone() {
			waiting = append(waiting, t)
		}
	}
	return waiting
}

// Enter waits for the turn until ctx ends or quit is closed; then it returns false. A turn with which the nodes were
// asked is taken all the same. To give up takes no lock and no search.
func (q *Local[W]) Enter(ctx context.Context, quit <-chan struct{}, key string, t *Turn) bool {
	if q.join(key, t) {
		return true
	}
	select {
	case <-t.Come:
		return true
	case <-ctx.Done():
	case <-quit:
	}
	left := t.decide(givenUp)
	if left {
		t.Ask = nil // what it would ask with is the caller's
		return false
	}
	<-t.Come // at the same moment
	if !t.Asked {
		q.Leave(key) // pass it on
	}
	return t.Asked
}

// Holds books that the one whose turn it is has got the key.
func (q *Local[W]) Holds(key string, by Holder[W]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.m[key] = line[W]{holder: by, waiters: q.m[key].waiters}
}

// Fails books what an attempt of the one whose turn it is ended with.
func (q *Local[W]) Fails(key string, res W) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.m[key] = line[W]{last: &res, waiters: q.m[key].waiters}
}

// Why says why the turn does not come, or did not: what keeps its owner from the key, or that its owner has it.
func (q *Local[W]) Why(key string) W {
	q.mu.RLock()
	at := q.m[key]
	q.mu.RUnlock()
	switch {
	case at.holder != nil:
		return at.holder.InTheWay()
	case at.last != nil:
		return *at.last
	}
	return q.free
}

// Leave passes the turn on.
func (q *Local[W]) Leave(key string) {
	next := q.pass(key, true)
	if next != nil {
		close(next.Come)
	}
}

// Next passes the turn on, if anybody waits for it; it has come when the caller says so.
func (q *Local[W]) Next(key string) *Turn { return q.pass(key, false) }

// pass takes the first in line out of it. If nobody is in line, the turn is free, or stays with its owner. Only the owner
// calls pass, so nobody else takes callers out of the line.
func (q *Local[W]) pass(key string, free bool) (first *Turn) {
	for more := true; more; {
		q.mu.Lock()
		at := q.m[key]
		waited := len(at.waiters) > 0
		first, more = at.first()
		if first != nil && at.holder != nil {
			at.last, at.holder = new(q.after(at.holder.InTheWay())), nil
		}
		switch {
		case free && first == nil && !more:
			delete(q.m, key)
		case waited:
			q.m[key] = at
		}
		q.mu.Unlock()
	}
	return first
}

// passedAtOnce is how many callers that have given up are passed with the lock.
const passedAtOnce = 64

// first takes callers out of the line up to the first that has not given up, and reports whether it stopped before it
// found one.
func (at *line[W]) first() (first *Turn, more bool) {
	for i, t := range at.waiters {
		if i == passedAtOnce {
			at.waiters = at.waiters[i:]
			return nil, true
		}
		at.waiters[i] = nil
		if t.decide(passed) {
			at.waiters = at.waiters[i+1:]
			return t, false
		}
	}
	at.waiters = nil
	return nil, false
}
