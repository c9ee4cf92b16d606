// Package queue is who waits for a key: [Local] is the queue of this process, in which callers stand in line, and a [Waiter] is
// one call in the queues of the nodes, which tell it over the subscriptions of a [Board] when its turn has come.
package queue

import (
	"context"
	"slices"
	"sync"

	"github.com/lockkit/lockkit/core/internal/node"
)

// Local let one contender per key out of this process at a time, first come, first served. Whoever has the
// turn contends for the key on the nodes, and keeps the turn for as long as its lease lasts. A W is why somebody else has it.
type Local[W any] struct {
	free  W             // why, where nobody knows: who has the turn was told nothing yet
	after func(why W) W // why, behind somebody who had to wait for that holder

	mu sync.Mutex
	m  map[string]line[W] // an entry exists while somebody has the turn
}

// A Holder of a key says why others do not have it.
type Holder[W any] interface{ InTheWay() W }

// A line is small, since each lease that is held has one.
type line[W any] struct {
	holder  Holder[W] // nil while the one whose turn it is contends
	last    *W        // what it was told last, or whoever had the turn before; nil = nothing. It is not changed
	waiters []*Turn
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
}

// TryEnter takes the turn if it is free.
func (q *Local[W]) TryEnter(key string) bool { return q.join(key, nil) }

// join takes the turn if it is free; else t stands in line for it, unless it is nil.
func (q *Local[W]) join(key string, t *Turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, taken := q.m[key]
	if taken && t != nil {
		t.Come = make(chan struct{})
		at.waiters = append(at.waiters, t)
	}
	q.m[key] = at
	return !taken
}

// Enter waits for the turn until ctx ends or quit is closed; then it returns false. A turn with which the nodes were
// asked is taken all the same.
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
	q.mu.Lock()
	at := q.m[key]
	if i := slices.Index(at.waiters, t); i >= 0 {
		at.waiters = slices.Delete(at.waiters, i, i+1)
		q.m[key] = at
		q.mu.Unlock()
		return false
	}
	q.mu.Unlock()
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
	q.mu.Lock()
	defer q.mu.Unlock()
	switch at := q.m[key]; {
	case at.holder != nil:
		return at.holder.InTheWay()
	case at.last != nil:
		return *at.last
	}
	return q.free
}

// Leave passes the turn on.
func (q *Local[W]) Leave(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if next := q.pass(key); next != nil {
		close(next.Come)
	} else {
		delete(q.m, key)
	}
}

// Next passes the turn on, if anybody waits for it; it has come when the caller says so.
func (q *Local[W]) Next(key string) *Turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pass(key)
}

// pass takes the first in line out of it. Called with the lock.
func (q *Local[W]) pass(key string) *Turn {
	at := q.m[key]
	if len(at.waiters) == 0 {
		return nil
	}
	first := at.waiters[0]
	at.waiters[0] = nil
	if at.holder != nil {
		at.last = new(q.after(at.holder.InTheWay()))
	}
	q.m[key] = line[W]{last: at.last, waiters: at.waiters[1:]}
	return first
}
