package queue

import (
	"context"
	"sync"
)

// LocalQueue is a FIFO queue per key. It lets one caller of this process contend for a key at a time: the owner of the
// turn contends for the key on the nodes, and keeps the turn for as long as its lease lasts. An R is the reason why a
// caller does not get a key.
type LocalQueue[R any] struct {
	pending R                // the reason while the owner of the turn has no answer yet
	behind  func(reason R) R // the reason behind a waiter, from the reason of the holder that this waiter waited for

	// mu guards queues. It is held for a few steps only, however long a queue is. A caller that gives up only reads
	// the reason (RLock), and never waits for mu in order to leave its queue, so a crowd of such callers delays no
	// other key.
	mu     sync.RWMutex
	queues map[string]keyQueue[R] // by key; an entry exists while a caller has the turn
}

// A Holder of a key returns the reason why others do not get it.
type Holder[R any] interface{ Refusal() R }

// NewLocalQueue returns an empty queue. Callers get the reason pending while the owner of the turn has no answer yet. If
// the turn passes from a holder to a waiter, the callers behind that waiter get behind(the holder's reason).
func NewLocalQueue[R any](pending R, behind func(R) R) *LocalQueue[R] {
	return &LocalQueue[R]{
		pending: pending,
		behind:  behind,
		queues:  map[string]keyQueue[R]{},
	}
}

// TryEnter takes the turn if it is free, and reports whether it was.
func (q *LocalQueue[R]) TryEnter(key string) bool { return q.join(key, nil) }

// join takes the turn if it is free, and reports whether it was. Otherwise it appends t to the queue, unless t is nil.
func (q *LocalQueue[R]) join(key string, t *Turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	kq, taken := q.queues[key]
	if taken && t != nil {
		t.Ready = make(chan struct{})
		kq.append(t)
	}
	q.queues[key] = kq
	return !taken
}

// Enter waits for the turn, and reports whether the caller has it. Enter gives up and returns false if ctx ends or
// quit is closed, except if the first request of the caller has been sent: then the caller takes the turn all the
// same. To give up takes no search, and does not wait for mu.
func (q *LocalQueue[R]) Enter(ctx context.Context, quit <-chan struct{}, key string, t *Turn) bool {
	ended := ctx.Done() // of the caller's context, which may panic: nobody would take the turn of a caller that has joined
	if q.join(key, t) {
		return true
	}

	select {
	case <-t.Ready:
		return true
	case <-ended:
	case <-quit:
	}

	abandoned := t.resolve(turnAbandoned)
	if abandoned {
		q.removeAbandoned(key, t)
		return false
	}

	// The turn was passed to this caller at the same moment.
	<-t.Ready
	if !t.Requested {
		q.PassOn(key)
	}
	return t.Requested
}

// removeAbandoned removes the turn of a caller that has given up from its queue. If mu is locked, it does nothing:
// the owner that passes the turn on will skip the abandoned turn, or a sweep will remove it.
func (q *LocalQueue[R]) removeAbandoned(key string, t *Turn) {
	t.Request = nil // frees what it refers to of the caller
	locked := q.mu.TryLock()
	if !locked {
		return
	}
	defer q.mu.Unlock()

	kq := q.queues[key]
	if kq.waiters[t.number] == t { // and not a turn of a later queue of the key
		delete(kq.waiters, t.number)
	}
}

// SetHolder records that the owner of the turn acquired the key.
func (q *LocalQueue[R]) SetHolder(key string, holder Holder[R]) {
	q.mu.Lock()
	defer q.mu.Unlock()

	kq := q.queues[key]
	kq.holder = holder
	kq.last = nil
	q.queues[key] = kq
}

// SetLast records the reason why the latest attempt of the owner of the turn was refused.
func (q *LocalQueue[R]) SetLast(key string, reason R) {
	q.mu.Lock()
	defer q.mu.Unlock()

	kq := q.queues[key]
	kq.holder = nil
	kq.last = &reason
	q.queues[key] = kq
}

// Blocker returns the reason why a caller does not get the turn, or did not get it: the owner of the turn holds the key,
// or was refused it.
func (q *LocalQueue[R]) Blocker(key string) R {
	q.mu.RLock()
	kq := q.queues[key]
	q.mu.RUnlock()
	switch {
	case kq.holder != nil:
		return kq.holder.Refusal()
	case kq.last != nil:
		return *kq.last
	}
	return q.pending
}

// PassOn passes the turn on to the first caller that waits, or frees it if no caller waits.
func (q *LocalQueue[R]) PassOn(key string) {
	next := q.pass(key, true)
	if next != nil {
		close(next.Ready)
	}
}

// PassToNext passes the turn on and returns the turn of its new owner, or nil if no caller waits: then the turn stays with
// its owner. The caller of PassToNext must close Ready of the result.
func (q *LocalQueue[R]) PassToNext(key string) *Turn { return q.pass(key, false) }

// pass removes the first waiting turn from the queue and returns it. If there is none, it returns nil, and frees the
// turn of the key if free is set. Only the owner of the turn calls pass, so no other goroutine removes turns that
// still wait.
func (q *LocalQueue[R]) pass(key string, free bool) *Turn {
	for {
		next, more := q.passSome(key, free)
		if !more {
			return next
		}
	}
}

// passSome is one step of pass, short enough for mu. It reports whether pass needs another step.
func (q *LocalQueue[R]) passSome(key string, free bool) (next *Turn, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	kq := q.queues[key]
	hadWaiters := len(kq.waiters) > 0
	next, more = kq.pop()
	if next != nil && kq.holder != nil {
		// Until the new owner has an answer, the callers behind it get a reason that is derived from the holder's.
		kq.last = new(q.behind(kq.holder.Refusal()))
		kq.holder = nil
	}

	switch {
	case free && next == nil && !more:
		delete(q.queues, key)
	case hadWaiters:
		q.queues[key] = kq
	}
	return next, more
}
