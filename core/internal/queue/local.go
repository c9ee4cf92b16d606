// Package queue is who waits for a key: [Local] is the queue of this process, in which callers stand in line, and a [Waiter] is
// one call in the queues of the nodes, which tell it over the subscriptions of a [Board] when its turn has come.
package queue

import (
	"context"
	"maps"
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
	// readers, and never wait for the lock to leave it, so that a crowd of them keeps no other key waiting.
	mu sync.RWMutex
	m  map[string]line[W] // an entry exists while somebody has the turn
}

// A Holder of a key says why others do not have it.
type Holder[W any] interface{ InTheWay() W }

// A line is small, since each lease that is held has one.
type line[W any] struct {
	holder  Holder[W]        // nil while the one whose turn it is contends
	last    *W               // what it was told last, or whoever had the turn before; nil = nothing. It is not changed
	waiters map[uint64]*Turn // by number; nil until somebody stands in line
	first   uint64           // no waiter has a smaller number
	next    uint64           // the number of the next waiter
}

// sweepEvery is how many callers join a line before it is searched for callers that gave up while the lock was taken.
const sweepEvery = 1024

// NewLocal makes an empty queue.
func NewLocal[W any](free W, after func(W) W) *Local[W] {
	return &Local[W]{free: free, after: after, m: map[string]line[W]{}}
}

// A Turn is what one in line waits for.
type Turn struct {
	Come  chan struct{}             // closed when it has
	Ask   func(release *node.Round) // asks the nodes, together with a release, before the one in line knows
	Asked bool                      // it was called

	number uint64       // in its line
	fate   atomic.Int32 // one of the fates; it leaves inLine once
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
		at.add(t)
	}
	q.m[key] = at
	return !taken
}

// add puts a caller at the end of the line.
func (at *line[W]) add(t *Turn) {
	if len(at.waiters) == 0 {
		at.waiters = map[uint64]*Turn{}
		at.first = at.next
	}
	t.number = at.next
	at.waiters[t.number] = t
	at.next++
	if at.next%sweepEvery == 0 {
		maps.DeleteFunc(at.waiters, func(_ uint64, t *Turn) bool { return t.gone() })
	}
}

// Enter waits for the turn until ctx ends or quit is closed; then it returns false. A turn with which the nodes were
// asked is taken all the same. To give up takes no search, and waits for no lock.
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
		q.forget(key, t)
		return false
	}
	<-t.Come // at the same moment
	if !t.Asked {
		q.Leave(key) // pass it on
	}
	return t.Asked
}

// forget takes a caller that has given up out of its line, unless the lock is taken: then whoever passes the turn on does it, or
// a sweep.
func (q *Local[W]) forget(key string, t *Turn) {
	t.Ask = nil // it has what belongs to the caller
	free := q.mu.TryLock()
	if !free {
		return
	}
	defer q.mu.Unlock()
	at := q.m[key]
	if at.waiters[t.number] == t { // and not of a later line
		delete(at.waiters, t.number)
	}
}

// Holds books that the one whose turn it is has got the key.
func (q *Local[W]) Holds(key string, by Holder[W]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.m[key]
	at.holder = by
	at.last = nil
	q.m[key] = at
}

// Fails books what an attempt of the one whose turn it is ended with.
func (q *Local[W]) Fails(key string, res W) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.m[key]
	at.holder = nil
	at.last = &res
	q.m[key] = at
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
func (q *Local[W]) pass(key string, free bool) *Turn {
	for {
		first, more := q.passSome(key, free)
		if !more {
			return first
		}
	}
}

// passSome is pass for as long as it may hold the lock, and reports whether there is more to do.
func (q *Local[W]) passSome(key string, free bool) (first *Turn, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.m[key]
	waited := len(at.waiters) > 0
	first, more = at.take()
	if first != nil && at.holder != nil {
		at.last = new(q.after(at.holder.InTheWay()))
		at.holder = nil
	}
	switch {
	case free && first == nil && !more:
		delete(q.m, key)
	case waited:
		q.m[key] = at
	}
	return first, more
}

// passedAtOnce is how many callers that have given up are passed with the lock.
const passedAtOnce = 64

// take takes the first caller out of the line that has not given up, and reports whether it stopped before it knew whether
// there is one.
func (at *line[W]) take() (first *Turn, more bool) {
	for range passedAtOnce {
		if len(at.waiters) == 0 {
			return nil, false
		}
		t := at.waiters[at.first]
		delete(at.waiters, at.first)
		at.first++
		if t != nil && t.decide(passed) {
			return t, false
		}
	}
	return nil, true
}
