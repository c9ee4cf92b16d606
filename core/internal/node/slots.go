package node

import (
	"slices"
	"sync"
)

// A slots bounds the batches of nothing but acquisitions over the connections to one server: they use half of
// them, so that those who ask for keys leave connections for what holders need, which is renewals, releases and
// completions. Over a single connection a renewal waits for one batch at most.
type slots struct {
	mu      sync.Mutex
	free    int
	waiting []sleeper
}

// A sleeper is what waits for a slot.
type sleeper interface{ wake() }

func newSlots(connections int) *slots { return &slots{free: max(1, connections/2)} }

// enter takes a slot. If there is none, who wants it is woken when there may be one.
func (s *slots) enter(by sleeper) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free > 0 {
		s.free--
		return true
	}
	if !slices.Contains(s.waiting, by) {
		s.waiting = append(s.waiting, by)
	}
	return false
}

// exit gives a slot back, and wakes those that wait, the longest first. They may have no use for it any more.
func (s *slots) exit() {
	s.mu.Lock()
	s.free++
	for s.free > 0 && len(s.waiting) > 0 {
		first := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		first.wake()
		s.mu.Lock()
	}
	s.mu.Unlock()
}
