package core

import (
	"sync"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A node that confirmed no release of an attempt may keep the key for it until the TTL is over, which may be hours. The node
// is not asked again and again until then. But when it names such an attempt as the holder of a key, the release is sent
// once more: nobody works under that lease.

// maxLeftovers bounds the attempts of a process that are remembered for that. The oldest is forgotten first, and its lease
// runs out by itself.
const maxLeftovers = 256

// leftovers are the attempts of this process whose release a node has not confirmed, by name.
type leftovers struct {
	mu     sync.Mutex // guards the fields below; held for no call
	byName map[string]*attempt
	names  []string // in the order in which they were added
}

// add remembers an attempt.
func (l *leftovers) add(a *attempt) {
	name := a.lock.Waiter().Name
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName[name] != nil {
		return
	}

	if len(l.names) == maxLeftovers {
		delete(l.byName, l.names[0])
		l.names = l.names[1:]
	}
	if l.byName == nil {
		l.byName = map[string]*attempt{}
	}
	l.byName[name] = a
	l.names = append(l.names, name)
}

// named returns the attempt of that name, nil if it is not remembered.
func (l *leftovers) named(name string) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byName[name]
}

// releaseLeftover sends the release of an attempt again to a node that names it as the holder, if the node has confirmed no
// release and none is under way.
func (e *engine) releaseLeftover(got node.Reply) {
	if got.Verdict != wire.Held {
		return
	}
	a := e.leftovers.named(got.Owner)
	if a == nil {
		return
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	debt, now := a.nodes[got.Node].lateGrant()
	if now {
		a.tellLater(got.Node, debt, 0)
	}
}
