package clock

import (
	"testing"
	"time"
)

// The kernel is asked when wall clock and monotonic clock part, whichever way. What it once said stands.
func TestKernelIsAskedWhenClocksPart(t *testing.T) {
	now := time.Now()
	s := newSuspension(now)
	for i, step := range []struct{ boot, wall, want time.Duration }{
		{0, 0, 0},
		{time.Hour, 0, 0}, // nothing tells of it
		{0, maxDrift, time.Hour},
		{time.Hour, -maxDrift, 2 * time.Hour},
		{-time.Hour, maxDrift, 2 * time.Hour},
		{0, 5 * time.Hour, 2 * time.Hour}, // a clock that is set
	} {
		s.boot -= step.boot
		s.ahead.Add(-int64(step.wall))
		if got := s.duration(now); (got - step.want).Abs() > wobble {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
