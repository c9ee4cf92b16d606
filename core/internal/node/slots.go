package node

import (
	"slices"
	"sync"
)

// A slotPool limits acquire-only batches to half of the connections to one server. The other half stays free for
// renewals, releases and completions. With a single connection, a renewal waits for at most one batch.
type slotPool struct {
	mu      sync.Mutex // guards the fields below
	free    int
	waiting []slotWaiter // in order of arrival
}

// A slotWaiter is woken when a slot may be free.
type slotWaiter interface{ wake() }

func newSlotPool(connections int) *slotPool {
	return &slotPool{free: max(1, connections/2)}
}

// take reserves a slot, and reports whether one was free. Otherwise w is woken when there may be one.
func (p *slotPool) take(w slotWaiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.free > 0 {
		p.free--
		return true
	}

	if !slices.Contains(p.waiting, w) {
		p.waiting = append(p.waiting, w)
	}
	return false
}

// put returns a slot and wakes waiters, the longest waiting first. A waiter may have no use for a slot any more, so
// the next one is woken until no slot is free.
func (p *slotPool) put() {
	p.mu.Lock()
	p.free++

	for p.free > 0 && len(p.waiting) > 0 {
		first := p.waiting[0]
		p.waiting = p.waiting[1:]

		// wake calls take.
		p.mu.Unlock()
		first.wake()
		p.mu.Lock()
	}
	p.mu.Unlock()
}
