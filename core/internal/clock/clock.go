// Package clock is the client's only source of time for leases: a stopwatch that never goes back, and that runs on while the
// machine is suspended. What it shows is an [Instant], which only ever meets an interval, or another Instant.
package clock

import (
	"math"
	"sync/atomic"
	"time"
)

// A Stopwatch is monotonic, and runs on while the machine is suspended, which Go's monotonic clock does not do everywhere
// (golang/go#24595).
type Stopwatch struct{ *suspension }

// New starts one.
func New() Stopwatch { return Stopwatch{newSuspension(time.Now())} }

// Now is the time since the stopwatch was made.
func (s Stopwatch) Now() Instant {
	now := time.Now()
	return Instant(now.Sub(s.base) + s.total(now))
}

// MaxTimer bounds how late the timers of a machine that was suspended notice that time has passed: they
// run on the clock that stood still.
const MaxTimer = time.Second

// An Instant is a time of a [Stopwatch], since it was made.
type Instant int64

// Never is the last instant there is.
const Never Instant = math.MaxInt64

// Add is the time d later, or Never.
func (t Instant) Add(d time.Duration) Instant {
	if d > time.Duration(Never-t) {
		return Never
	}
	return t + Instant(d)
}

// Since is how much later t is than u.
func (t Instant) Since(u Instant) time.Duration { return time.Duration(t - u) }

// An AtomicInstant is read without a lock.
type AtomicInstant struct{ v atomic.Int64 }

// Load is that of package sync/atomic.
func (a *AtomicInstant) Load() Instant { return Instant(a.v.Load()) }

// Store is that of package sync/atomic.
func (a *AtomicInstant) Store(t Instant) { a.v.Store(int64(t)) }
