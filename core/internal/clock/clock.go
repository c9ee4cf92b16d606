// Package clock is the only source of time for leases: a [Stopwatch] that never goes back, and that also runs while
// the machine is suspended. It shows an [Instant], which can be combined with durations and other Instants only.
package clock

import (
	"math"
	"sync/atomic"
	"time"
)

// A Stopwatch measures monotonic time. It also runs while the machine is suspended; Go's monotonic clock does not do
// so on every system (golang/go#24595).
type Stopwatch struct{ *suspension }

// New returns a running Stopwatch.
func New() Stopwatch {
	return Stopwatch{newSuspension(time.Now())}
}

// Now returns the time since the stopwatch was made.
func (s Stopwatch) Now() Instant {
	now := time.Now()
	return Instant(now.Sub(s.base) + s.duration(now))
}

// MaxTimer is the longest timer that may guard a lease. Timers run on a clock that stands still while the machine is
// suspended, so they can fire late by as much.
const MaxTimer = time.Second

// An Instant is a time of a [Stopwatch], since it was made.
type Instant int64

// Never is the last possible Instant.
const Never Instant = math.MaxInt64

// Add returns the time d later, at most Never.
func (t Instant) Add(d time.Duration) Instant {
	if d > time.Duration(Never-t) {
		return Never
	}
	return t + Instant(d)
}

// Since returns t-u.
func (t Instant) Since(u Instant) time.Duration {
	return time.Duration(t - u)
}

// An AtomicInstant is an Instant that goroutines share without a lock.
type AtomicInstant struct{ v atomic.Int64 }

// Load returns the Instant atomically.
func (a *AtomicInstant) Load() Instant {
	return Instant(a.v.Load())
}

// Store sets the Instant atomically.
func (a *AtomicInstant) Store(t Instant) {
	a.v.Store(int64(t))
}
