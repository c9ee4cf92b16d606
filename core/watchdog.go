package core

import (
	"container/heap"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/internal/gate"
	"github.com/lockkit/lockkit/internal/stall"
)

// A watchdog watches all leases of an engine, and is the list of them. It has one timer, set for the lease that is
// due first. A lease that is due is renewed, or declared lost because its trusted time is over. The timer does no I/O
// and does not wait for any: the lanes send its requests, and the goroutine that brings the last reply ends the
// round.
type watchdog struct {
	e *node.Group

	// mu guards the fields below, and inspectAt and heapIndex of each lease. It is taken with the lock of a lease
	// held, and never the other way round.
	mu     sync.Mutex
	leases leaseHeap
	timer  *time.Timer // nil until a lease is scheduled
}

// From manyLeases leases on, renewals that are due within lookAhead leave together: a little early, and in fewer
// batches.
const (
	manyLeases = 1000
	lookAhead  = 20 * time.Millisecond
)

// add adds a lease if the gate admits it, and reports whether it did. The lease is not inspected before it is
// scheduled.
//
// Both happen under one lock: a caller that closes the gate and then takes the lock sees every lease that was admitted.
func (w *watchdog) add(lease *Lease, gate *gate.Gate) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	admitted := gate.Enter()
	if !admitted {
		return false
	}
	lease.inspectAt = clock.Never
	heap.Push(&w.leases, lease)
	return true
}

// reschedule sets when the lease is inspected next.
func (w *watchdog) reschedule(lease *Lease, at clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lease.inspectAt = at
	heap.Fix(&w.leases, lease.heapIndex)
	if lease.heapIndex == 0 {
		w.resetTimer()
	}
}

// remove removes a lease that has ended.
func (w *watchdog) remove(lease *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	heap.Remove(&w.leases, lease.heapIndex)
}

// resetTimer sets the timer for the lease that is due first. A timer runs for at most clock.MaxTimer, because timers
// stop while the machine is suspended. w.mu must be held, and there must be a lease.
func (w *watchdog) resetTimer() {
	d := min(max(w.leases[0].inspectAt.Since(w.e.Clock.Now()), 0), clock.MaxTimer)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.onTimer)
	} else {
		w.timer.Reset(d)
	}
}

// onTimer inspects every lease that is due.
func (w *watchdog) onTimer() {
	stall.At(stall.Timer, stall.Anywhere, w)

	w.mu.Lock()
	now := w.e.Clock.Now()
	until := now
	if len(w.leases) >= manyLeases {
		until = now.Add(lookAhead)
	}

	var due []*Lease
	for len(w.leases) > 0 && w.leases[0].inspectAt <= until {
		due = append(due, w.leases[0])
		w.leases[0].inspectAt = clock.Never // until inspect schedules it again
		heap.Fix(&w.leases, 0)
	}
	if len(w.leases) > 0 {
		w.resetTimer()
	}
	w.mu.Unlock()

	// Leases are inspected without w.mu, because inspect takes the lock of the lease first.
	var renewals []*renewal
	for _, lease := range due {
		r := lease.inspect(now, until)
		if r != nil {
			renewals = append(renewals, r)
		}
	}

	// Requests are sent last: no lease whose time is over waits for them.
	for _, r := range renewals {
		r.start()
	}
}

// A leaseHeap is a heap of leases, ordered by inspectAt.
type leaseHeap []*Lease

func (h leaseHeap) Len() int { return len(h) }
func (h leaseHeap) Less(i, j int) bool {
	return h[i].inspectAt < h[j].inspectAt
}
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex = i
	h[j].heapIndex = j
}

func (h *leaseHeap) Push(x any) {
	x.(*Lease).heapIndex = len(*h)
	*h = append(*h, x.(*Lease))
}

func (h *leaseHeap) Pop() any {
	old := *h
	lease := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return lease
}
