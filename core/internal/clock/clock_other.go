//go:build !linux

package clock

import (
	"sync"
	"time"
)

// maxDrift is the largest difference between the wall clock and the monotonic clock that slewing explains.
const maxDrift = 500 * time.Millisecond

// A suspension estimates how long the machine has been suspended since the suspension was made, by the wall clock: by
// how far that ran ahead of Go's monotonic clock between two readings. A wall clock that is set forward looks the
// same and ends leases early, which is safe. A wall clock that is set back does not reduce the time in suspension.
type suspension struct {
	base time.Time // when the suspension was made

	mu    sync.Mutex    // guards the fields below
	last  time.Time     // the last reading
	total time.Duration // the time in suspension until then
}

func newSuspension(now time.Time) *suspension {
	return &suspension{base: now, last: now}
}

// duration returns the time in suspension until now.
func (s *suspension) duration(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()

	// Round(0) strips the monotonic reading.
	if ahead := now.Round(0).Sub(s.last.Round(0)) - now.Sub(s.last); ahead > maxDrift {
		s.total += ahead
	}

	if !now.Before(s.last) {
		s.last = now
	}
	return s.total
}
