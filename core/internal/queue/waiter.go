package queue

import (
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/stall"
)

// The queue of a key is on its nodes (lua/queue.lua), and each of them tells the first two of it when the key becomes
// free. Who is told is the wait, not the process, nor an attempt.
const (
	// A quorum of the nodes has told, or so much time has passed since the first.
	TellWithin = 5 * time.Millisecond
	// The turn of the first on a node, which the second waits for.
	TurnTime = 50 * time.Millisecond
	// A wait that a quorum has in its queue asks by itself so often, at least.
	FallbackMin, FallbackMax = 750 * time.Millisecond, time.Second
)

// A Waiter is one call of Acquire that waits, under the name of its first attempt.
type Waiter struct {
	Name   wire.Waiter // on the nodes, and when it began
	quorum int
	Try    chan struct{} // room for one: it is to try

	mu       sync.Mutex
	over     bool       // the call is
	notified quorum.Set // since it last tried
	timer    *time.Timer
	at       time.Time // when the timer fires; zero = it does not run
}

// NewWaiter is a call that began then, under the name of its first attempt.
func NewWaiter(name wire.Waiter, began wire.Stamp, quorum int) *Waiter {
	name.Ticket = began
	return &Waiter{Name: name, quorum: quorum, Try: make(chan struct{}, 1)}
}

// A notice is what a node tells a wait.
type notice struct {
	name  string
	node  int
	first bool // in its queue; else it is the second
}

// notify notes what a node tells the wait.
func (w *Waiter) notify(t notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.first {
		w.after(TurnTime)
		return
	}
	w.notified = w.notified.With(t.node)
	if w.notified.Len() < w.quorum {
		w.after(TellWithin)
		return
	}
	w.now()
}

// after has the wait try then, unless it is to try before. Called with the lock.
func (w *Waiter) after(d time.Duration) {
	at := time.Now().Add(d)
	if !w.at.IsZero() && !at.Before(w.at) {
		return
	}
	w.at = at
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.fire)
	} else {
		w.timer.Reset(d)
	}
}

func (w *Waiter) fire() {
	stall.At(stall.Timer, stall.Anywhere, w)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.at.IsZero() {
		w.now()
	}
}

// now has the wait try. Called with the lock.
func (w *Waiter) now() {
	w.stop()
	select {
	case w.Try <- struct{}{}:
	default: // it is to try already
	}
}

// stop forgets what was told. Called with the lock.
func (w *Waiter) stop() {
	w.notified = 0
	w.at = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

// End notes that the call is over.
func (w *Waiter) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.stop()
}

// GoesOn reports whether the call has not ended.
func (w *Waiter) GoesOn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over
}

// Trying notes that the wait tries now. What it is told from now on has it try once more.
func (w *Waiter) Trying() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notified = 0
	select {
	case <-w.Try:
	default:
	}
}
