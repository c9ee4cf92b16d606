package queue

import "maps"

// A keyQueue is the queue of one key. It is small, because each lease that is held has one.
type keyQueue[R any] struct {
	holder  Holder[R]        // nil while the owner of the turn contends for the key
	last    *R               // the latest refusal of the owner, or of the one before; nil if none; never modified
	waiters map[uint64]*Turn // by number; nil until a caller has to wait
	first   uint64           // no waiter has a smaller number
	next    uint64           // the number of the next waiter
}

// sweepEvery is how many callers join a queue between two searches for callers that gave up while mu was locked.
const sweepEvery = 1024

// append adds a caller at the end of the queue.
func (kq *keyQueue[R]) append(t *Turn) {
	if len(kq.waiters) == 0 {
		kq.waiters = map[uint64]*Turn{}
		kq.first = kq.next
	}

	t.number = kq.next
	kq.waiters[t.number] = t
	kq.next++

	if kq.next%sweepEvery == 0 {
		maps.DeleteFunc(kq.waiters, func(_ uint64, t *Turn) bool { return t.isAbandoned() })
	}
}

// maxPops bounds how many turns of callers that have given up are removed without unlocking mu.
const maxPops = 64

// pop removes turns up to the first that waits, and returns that one; nil if there is none. After maxPops turns it
// returns nil and more, because it does not know yet.
func (kq *keyQueue[R]) pop() (first *Turn, more bool) {
	for range maxPops {
		if len(kq.waiters) == 0 {
			return nil, false
		}

		t := kq.waiters[kq.first]
		delete(kq.waiters, kq.first)
		kq.first++
		if t != nil && t.resolve(turnPassed) {
			return t, false
		}
	}
	return nil, true
}
