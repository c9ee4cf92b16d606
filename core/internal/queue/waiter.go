package queue

import (
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/stall"
)

// The nodes keep the queue of a key (lua/queue.lua), and each node notifies the first two waiters of its queue when
// the key becomes free. A notification is for a waiting call, not for its process, nor for one of its attempts.
const (
	// A waiter that nodes notify as the first tries when a quorum of them has done so, and at the latest this long
	// after the first notification.
	NotifyWindow = 5 * time.Millisecond

	// The turn of the first waiter on a node. The second waiter tries when it is over.
	TurnTime = 50 * time.Millisecond

	// A waiter that is queued on a quorum still polls, in case a notification is lost. The pause between two attempts
	// is drawn from this range, and is shorter if the key becomes free earlier.
	FallbackMin, FallbackMax = 750 * time.Millisecond, time.Second
)

// A Waiter is a call of Acquire that waits. It has the name of its first attempt.
type Waiter struct {
	Name   wire.Waiter // the name in the queues of the nodes, and when the call began
	quorum int
	Wake   chan struct{} // receives when the call must try; it has a buffer of one

	mu       sync.Mutex  // guards the fields below
	over     bool        // the call has ended
	notified quorum.Set  // the nodes that notified the waiter as the first since its last attempt
	timer    *time.Timer // calls onTimer; nil until it is first needed
	wakeAt   time.Time   // when the timer fires; zero if it is stopped
}

// NewWaiter returns the Waiter of a call that began at a time, under the name of its first attempt. quorum is how
// many nodes are one.
func NewWaiter(name wire.Waiter, began wire.Stamp, quorum int) *Waiter {
	name.Ticket = began
	return &Waiter{
		Name:   name,
		quorum: quorum,
		Wake:   make(chan struct{}, 1),
	}
}

// A notice is a notification that a node published for a waiter.
type notice struct {
	name  string // of the waiter
	node  int
	first bool // the waiter is the first in the node's queue; otherwise it is the second
}

// notify wakes the waiter if a quorum has notified it as the first. Otherwise it schedules a wake-up.
func (w *Waiter) notify(n notice) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if !n.first {
		w.wakeAfter(TurnTime)
		return
	}

	w.notified = w.notified.With(n.node)
	if w.notified.Len() < w.quorum {
		w.wakeAfter(NotifyWindow)
		return
	}
	w.wake()
}

// wakeAfter schedules a wake-up in d, unless an earlier one is scheduled. w.mu must be held.
func (w *Waiter) wakeAfter(d time.Duration) {
	at := time.Now().Add(d)
	if !w.wakeAt.IsZero() && !at.Before(w.wakeAt) {
		return
	}

	w.wakeAt = at
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.onTimer)
	} else {
		w.timer.Reset(d)
	}
}

func (w *Waiter) onTimer() {
	stall.At(stall.Timer, stall.Anywhere, w)
	w.mu.Lock()
	defer w.mu.Unlock()

	if !w.wakeAt.IsZero() { // the timer was not stopped while it fired
		w.wake()
	}
}

// wake makes the call try. w.mu must be held.
func (w *Waiter) wake() {
	w.reset()
	select {
	case w.Wake <- struct{}{}:
	default: // it was woken before and has not tried yet
	}
}

// reset forgets the notifications, and cancels a scheduled wake-up. w.mu must be held.
func (w *Waiter) reset() {
	w.notified = 0
	w.wakeAt = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

// End records that the call has ended.
func (w *Waiter) End() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.over = true
	w.reset()
}

// Active reports whether the call has not ended.
func (w *Waiter) Active() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over
}

// BeginAttempt must be called before each attempt. It forgets the notifications so far: later ones make the call try once
// more.
func (w *Waiter) BeginAttempt() {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.notified = 0
	select {
	case <-w.Wake:
	default:
	}
}
