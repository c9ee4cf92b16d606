package clock

import (
	"testing"
	"time"
)

// The kernel is asked if the wall clock and the monotonic clock drift apart in either direction. A suspension that it
// has reported is not forgotten.
func TestKernelIsAskedWhenClocksPart(t *testing.T) {
	now := time.Now()
	s := newSuspension(now)
	for i, step := range []struct{ boot, wall, want time.Duration }{
		{0, 0, 0},
		{time.Hour, 0, 0}, // no clock shows it
		{0, maxDrift, time.Hour},
		{time.Hour, -maxDrift, 2 * time.Hour},
		{-time.Hour, maxDrift, 2 * time.Hour},
		{0, 5 * time.Hour, 2 * time.Hour}, // the wall clock was set
	} {
		s.boot -= step.boot
		s.ahead.Add(-int64(step.wall))
		if got := s.duration(now); (got - step.want).Abs() > wobble {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
