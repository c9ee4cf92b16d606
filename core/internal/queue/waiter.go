package queue

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
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

// tell notes what a node tells the wait.
func (w *Waiter) notify(t notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !t.first {
		w.after(TurnTime)
		return
	}
	if w.notified = w.notified.With(t.node); w.notified.Len() < w.quorum {
		w.after(TellWithin)
		return
	}
	w.now()
}

// after has the wait try then, unless it is to try before. Called with the lock.
func (w *Waiter) after(d time.Duration) {
	at := time.Now().Add(d)
	switch {
	case !w.at.IsZero() && !at.Before(w.at):
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(d, w.fire)
	default:
		w.timer.Reset(d)
	}
	w.at = at
}

func (w *Waiter) fire() {
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
	w.notified, w.at = 0, time.Time{}
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

// A Board is the calls of a Locker that wait, and what nodes tell them.
type Board struct {
	g        *node.Group
	Channels []wire.Channel // by guard bucket

	ctx  context.Context // of the subscriptions
	Stop func()          // has nobody listen any more

	mu     sync.Mutex
	byName map[string]*Waiter
	// lately is what waits were told that are not known: the answer that makes one of them wait may be on its way.
	lately        [256]notice
	next          int
	subscriptions []*subscription // by guard bucket and node
}

// A told is what a node tells a wait.
type notice struct {
	name  string
	node  int
	first bool // in its queue; else it is the second
}

// Init makes the channels that nodes are to publish on.
func (b *Board) Init(g *node.Group, buckets int) {
	b.g, b.byName, b.subscriptions = g, map[string]*Waiter{}, make([]*subscription, buckets*len(g.Nodes))
	b.ctx, b.Stop = context.WithCancel(context.Background()) //nolint:forbidigo // ended by Close
	process := rand.Text()[:13]                              // short enough for a queue to be packed by Redis, which takes up to 64 bytes
	for bucket := range buckets {
		b.Channels = append(b.Channels, g.Keys.Channel(bucket, process))
	}
}

// Begin books a wait, and has the nodes listened to. A wait hears what it was told before it was booked.
func (b *Board) Begin(w *Waiter, bucket int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := w.Name.Name
	b.byName[name] = w
	for i, t := range b.lately {
		if t.name == name {
			b.lately[i] = notice{}
			w.notify(t)
		}
	}
	for i, n := range b.g.Nodes {
		if at := bucket*len(b.g.Nodes) + i; b.subscriptions[at] == nil {
			b.subscriptions[at] = &subscription{board: b, n: n, bucket: bucket}
			b.g.Go(b.subscriptions[at].listen)
		}
	}
}

// dismiss lets go of a subscription if nobody waits, and reports whether it did. The next waiter makes another.
func (b *Board) dismiss(e *subscription) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byName) > 0 {
		return false
	}
	b.subscriptions[e.bucket*len(b.g.Nodes)+e.n.Index] = nil
	return true
}

// End has nobody listened to for a wait.
func (b *Board) End(w *Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byName, w.Name.Name)
}

// Hear takes what a node published: a place, and a name.
func (b *Board) Hear(node int, message string) {
	place, name, _ := strings.Cut(message, " ")
	t := notice{name, node, place == "1"}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.byName[name]; w != nil {
		w.notify(t)
		return
	}
	b.lately[b.next] = t
	b.next = (b.next + 1) % len(b.lately)
}

// All has every wait try: nobody knows what they were told while nobody listened.
func (b *Board) All() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.byName {
		w.mu.Lock()
		w.now()
		w.mu.Unlock()
	}
}

// Len is how many calls wait.
func (b *Board) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.byName)
}
