//go:build !linux

package clock

import (
	"sync"
	"time"
)

// wallStep is a difference between wall clock and monotonic clock that slewing does not explain.
const wallStep = 500 * time.Millisecond

// A suspension knows how long the machine has been suspended since it was made, as far as the wall clock
// tells: by how much it ran ahead of Go's monotonic clock between two looks. A wall clock that is set forward
// looks the same and ends leases early, which is the safe side; one that is set back takes nothing away.
type suspension struct {
	base time.Time // when it was made
	mu   sync.Mutex
	last time.Time
	sum  time.Duration
}

func newSuspension(now time.Time) *suspension { return &suspension{base: now, last: now} }

func (s *suspension) total(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ahead := now.Round(0).Sub(s.last.Round(0)) - now.Sub(s.last); ahead > wallStep {
		s.sum += ahead
	}
	if !now.Before(s.last) {
		s.last = now
	}
	return s.sum
}
