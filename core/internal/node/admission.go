package node

import (
	"sync"

	"github.com/redis/go-redis/v9"
)

// A slots bounds the batches of nothing but acquisitions over the connections to one server: they use half of
// them, so that those who ask for keys leave connections for what holders need, which is renewals, releases and
// completions. Over a single connection a renewal waits for one batch at most.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []*lane
}

func newSlots(connections int) *slots { return &slots{free: max(1, connections/2)} }

// enter takes a slot for a lane. If there is none, the lane is tried again when there may be one. Called with
// the lane's lock.
func (s *slots) enter(l *lane) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		if l.inLine != s {
			l.inLine = s
			s.waiting = append(s.waiting, l)
		}
		return false
	}
	s.free--
	return true
}

// exit gives a slot back, and lets the lanes that wait try, the longest first.
func (s *slots) exit() {
	s.mu.Lock()
	s.free++
	for s.free > 0 && len(s.waiting) > 0 {
		first := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		first.mu.Lock()
		if first.inLine == s {
			first.inLine = nil
		}
		first.next() // it may have no use for the slot any more
		first.mu.Unlock()
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// slots returns what bounds the acquisitions over the connections to one server: to the master of a shard,
// or to the node that has no shards, nil. Called with the node's lock.
func (n *Node) slots(master *redis.Client) *slots {
	for _, b := range n.breakers { // shards have many buckets
		if b != nil && b.master == master {
			return b.slots
		}
	}
	return newSlots(n.Connections)
}
