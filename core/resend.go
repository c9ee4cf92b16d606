package core

import (
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
)

// A resend tells nodes once more that attempts are over, which have not answered that they were told. These are timers:
// however many wait for their time, they take no goroutine.
type resend struct {
	e       *node.Group
	mu      sync.Mutex
	pending map[*time.Timer]struct{}
}

// push has a node told after a delay; at once when the Locker is being closed, so that Close does not wait for a
// node that is down. It reports false when nobody would wait for it any more.
func (q *resend) push(of interface{ resend(node int) }, node int, after time.Duration) bool {
	if !q.e.Enlist() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.e.IsClosing() {
		after = 0
	}
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		q.mu.Lock()
		delete(q.pending, timer)
		q.mu.Unlock()
		of.resend(node)
	})
	q.pending[timer] = struct{}{}
	return true
}

// hurry has nodes told what they are still to be told.
func (q *resend) hurry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for timer := range q.pending {
		if timer.Stop() {
			timer.Reset(0)
		}
	}
}
