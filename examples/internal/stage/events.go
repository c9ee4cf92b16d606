package stage

import (
	"context"
	"slices"
	"sync"
)

// Events keeps what processes report, in the order in which it arrives. It is safe for concurrent use.
type Events[E any] struct {
	mu   sync.Mutex
	all  []E
	more chan struct{} // is closed by the next event; nil while nobody waits
}

// Add adds an event.
func (s *Events[E]) Add(e E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e)
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// All returns a copy of the events so far.
func (s *Events[E]) All() []E {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Wait returns the first event that matches, which may have come already. The error is the cause of the end of ctx.
func (s *Events[E]) Wait(ctx context.Context, match func(E) bool) (e E, err error) {
	for seen := 0; ; {
		events, more := s.sofar()
		if i := slices.IndexFunc(events[seen:], match); i >= 0 {
			return events[seen+i], nil
		}
		seen = len(events)

		select {
		case <-more:
		case <-ctx.Done():
			return e, context.Cause(ctx)
		}
	}
}

// sofar returns the events so far, which are not changed any more, and what the next one closes.
func (s *Events[E]) sofar() (events []E, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return s.all, s.more
}
