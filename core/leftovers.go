package core

import "sync"

// A node that has confirmed no release of an attempt may keep the key for it until the TTL is over, which may be hours.
// The node is not asked repeatedly until then. But if it names such an attempt as the holder of a key, the release is
// sent once more, because no code works under that lease.

// maxLeftovers limits the attempts that a process remembers for this. The oldest is forgotten first, and its lease runs
// out on the node.
const maxLeftovers = 256

// The leftovers are the attempts of this process whose release a node has not confirmed.
type leftovers struct {
	// mu guards the fields below. It may be taken with the lock of an attempt held, and no call is made under it.
	mu     sync.Mutex
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

// named returns the attempt with this name, or nil if it is not remembered.
func (l *leftovers) named(name string) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byName[name]
}
