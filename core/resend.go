package core

import (
	"slices"
	"sync"
	"time"
)

// A resend tells nodes once more that attempts are over, which have not answered that they were told. It is a timer:
// however many wait for their time, they take no goroutine.
type resend struct {
	e     *ensemble
	mu    sync.Mutex
	queue []unheardEnd // by time
	timer *time.Timer
}

// An unheardEnd is the end of an attempt that a node is to be told again.
type unheardEnd struct {
	at   instant
	of   interface{ resend(node int) }
	node int
}

// push has a node told after a delay; at once when the Locker is being closed, so that Close does not wait for a
// node that is down. It reports false when nobody would wait for it any more.
func (q *resend) push(of interface{ resend(node int) }, node int, after time.Duration) bool {
	if !q.e.enlist() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.e.isClosing() {
		after = 0
	}
	u := unheardEnd{q.e.clock.now().add(after), of, node}
	i, _ := slices.BinarySearchFunc(q.queue, u.at+1, func(u unheardEnd, at instant) int { return int(u.at - at) })
	q.queue = slices.Insert(q.queue, i, u)
	if i == 0 {
		q.set(after)
	}
	return true
}

// set has the timer run. Called with the lock.
func (q *resend) set(after time.Duration) {
	if q.timer == nil {
		q.timer = time.AfterFunc(after, func() { q.run(false) })
		return
	}
	q.timer.Reset(after)
}

// run sends what is due, or all.
func (q *resend) run(all bool) {
	q.mu.Lock()
	n := 0
	for n < len(q.queue) && (all || q.queue[n].at <= q.e.clock.now()) {
		n++
	}
	due := slices.Clone(q.queue[:n])
	q.queue = slices.Delete(q.queue, 0, n)
	if len(q.queue) > 0 {
		q.set(q.queue[0].at.since(q.e.clock.now()))
	}
	q.mu.Unlock()
	for _, u := range due {
		u.of.resend(u.node)
	}
}
