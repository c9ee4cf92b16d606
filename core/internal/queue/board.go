package queue

import (
	"slices"
	"strings"
	"sync"

	"github.com/lockkit/lockkit/core/internal/node"
)

// maxUnclaimed is how many notifications for unknown waiters are kept: one can arrive before the reply that makes
// its call wait.
const maxUnclaimed = 256

// A Board has the calls of a Locker that wait, and delivers to them what the nodes publish. It subscribes to a node
// over a connection of its own. The subscription begins with the first waiter. It ends when the Locker is closed, or
// when no call waits and nothing has been received for a while.
type Board struct {
	g *node.Group

	mu         sync.Mutex         // guards the fields below
	waiters    map[string]*Waiter // by name
	unclaimed  []notice           // for unknown waiters, the oldest first; at most maxUnclaimed
	subscribed map[source]bool    // the sources for which a goroutine runs
}

// Init prepares the Board for the nodes of a Locker.
func (b *Board) Init(g *node.Group) {
	b.g = g
	b.waiters = map[string]*Waiter{}
	b.subscribed = map[source]bool{}
}

// Add adds a waiter, and subscribes to the nodes for it. Notifications that came for it before are delivered now.
func (b *Board) Add(w *Waiter, bucket *node.Bucket) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.waiters[w.Name.Name] = w
	b.unclaimed = slices.DeleteFunc(b.unclaimed, func(n notice) bool {
		if n.name != w.Name.Name {
			return false
		}
		w.notify(n)
		return true
	})

	for _, n := range b.g.Nodes {
		s := source{n, bucket}
		if b.subscribed[s] {
			continue
		}
		b.subscribed[s] = true
		b.g.Tasks.Go(func() { b.subscribe(s) })
	}
}

// Remove removes a waiter.
func (b *Board) Remove(w *Waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters, w.Name.Name)
}

// Deliver delivers a message that a node published: a place in the queue, a space, and the name of a waiter. If the
// waiter is unknown, Deliver keeps the message for it.
func (b *Board) Deliver(node int, message string) {
	place, name, _ := strings.Cut(message, " ")
	n := notice{name, node, place == "1"}

	b.mu.Lock()
	defer b.mu.Unlock()

	if w := b.waiters[name]; w != nil {
		w.notify(n)
		return
	}
	b.unclaimed = append(b.unclaimed[max(0, len(b.unclaimed)+1-maxUnclaimed):], n)
}

// WakeAll wakes every waiter: notifications may have been lost while there was no subscription.
func (b *Board) WakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, w := range b.waiters {
		w.mu.Lock()
		w.wake()
		w.mu.Unlock()
	}
}
