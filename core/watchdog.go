package core

import (
	"container/heap"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// A watchdog looks after all leases of an engine: one timer, set for the lease that is due first. When a
// lease is due it is renewed, or declared lost because its trusted time is over. The timer does no I/O and
// waits for none: the lanes send what it hands them, and who brings the last reply ends the round.
type watchdog struct {
	e     *engine
	mu    sync.Mutex
	due   leaseHeap
	timer *time.Timer
}

// Of manyLeases, renewals that are due within lookAhead go together: a little early, and in fewer batches.
const (
	manyLeases = 1000
	lookAhead  = 20 * time.Millisecond
)

// watch has a lease looked at at that time.
func (w *watchdog) watch(lease *Lease, at clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lease.next = at
	if lease.place >= 0 {
		w.due[lease.place].at = at
		heap.Fix(&w.due, lease.place)
	} else {
		heap.Push(&w.due, lease)
	}
	if lease.place == 0 {
		w.set()
	}
}

func (w *watchdog) remove(lease *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lease.place >= 0 {
		heap.Remove(&w.due, lease.place)
	}
	if len(w.due) == 0 && w.timer != nil {
		w.timer.Stop()
	}
}

// set starts the timer for the first lease. Timers stand still while the machine is suspended, so none runs
// for long.
func (w *watchdog) set() {
	d := min(max(w.due[0].at.Since(w.e.Clock.Now()), 0), clock.MaxTimer)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.run)
	} else {
		w.timer.Reset(d)
	}
}

// run looks at every lease that is due.
func (w *watchdog) run() {
	w.mu.Lock()
	now := w.e.Clock.Now()
	until := now
	if len(w.due) >= manyLeases {
		until = now.Add(lookAhead)
	}
	var due []*Lease
	for len(w.due) > 0 && w.due[0].at <= until {
		due = append(due, heap.Pop(&w.due).(*Lease))
	}
	if len(w.due) > 0 {
		w.set()
	}
	w.mu.Unlock()
	var renewals []*renewal
	for _, lease := range due {
		if r := lease.inspect(now, until); r != nil {
			renewals = append(renewals, r)
		}
	}
	for _, r := range renewals { // now that the leases that are over have ended
		r.start()
	}
}

// leaseHeap orders leases by when they are due.
type leaseHeap []watched

// A watched is a lease, and when it is due: here, too, because the heap compares often.
type watched struct {
	at    clock.Instant
	lease *Lease
}

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].lease.place, h[j].lease.place = i, j
}

func (h *leaseHeap) Push(x any) {
	lease := x.(*Lease)
	lease.place = len(*h)
	*h = append(*h, watched{lease.next, lease})
}

func (h *leaseHeap) Pop() any {
	old := *h
	lease := old[len(old)-1].lease
	old[len(old)-1] = watched{}
	*h = old[:len(old)-1]
	lease.place = -1
	return lease
}
