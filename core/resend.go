package core

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A resend tells nodes once more that attempts are over, which have not answered that they were told. It is a timer:
// however many wait for their time, they take no goroutine.
type resend struct {
	mu    sync.Mutex
	queue []unheardEnd // by time
	timer *time.Timer
}

// An unheardEnd is the end of an attempt that a node is to be told again.
type unheardEnd struct {
	at   time.Duration
	a    *attempt
	node int
}

// push has a node told after a delay; at once when the Locker is being closed, so that Close does not wait for a
// node that is down. It reports false when nobody would wait for it any more.
func (q *resend) push(a *attempt, node int, after time.Duration) bool {
	if !a.e.enlist() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.e.isClosing() {
		after = 0
	}
	u := unheardEnd{a.e.clock.now() + after, a, node}
	i, _ := slices.BinarySearchFunc(q.queue, u.at+1, func(u unheardEnd, at time.Duration) int { return int(u.at - at) })
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
	for n < len(q.queue) && (all || q.queue[n].at <= q.queue[n].a.e.clock.now()) {
		n++
	}
	due := slices.Clone(q.queue[:n])
	q.queue = slices.Delete(q.queue, 0, n)
	if len(q.queue) > 0 {
		first := q.queue[0]
		q.set(first.at - first.a.e.clock.now())
	}
	q.mu.Unlock()
	for _, u := range due {
		u.a.resend(u.node)
	}
}

// resend tells a node that the attempt is over. If that fails, too, the lease runs out by itself, and the clock
// window refuses what is still under way.
func (a *attempt) resend(node int) {
	r := a.releasing(a.stay())
	r.must, r.asker = false, nil
	r.onOver = func() {
		defer a.e.tasks.Done()
		a.mu.Lock()
		defer a.mu.Unlock()
		s := &a.nodes[node]
		s.releasing, s.unreleased = false, r.count(Granted)+r.count(Gone) == 0
	}
	r.send(context.Background(), nodeSet(0).with(node))
}
