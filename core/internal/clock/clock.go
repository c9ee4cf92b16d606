// Package clock is the client's only source of time for leases: a stopwatch that never goes back, and that runs on while the
// machine is suspended. What it shows is an [Instant], which only ever meets an interval, or another Instant.
package clock

import "time"

// A Stopwatch is monotonic, and runs on while the machine is suspended, which Go's monotonic clock does not do everywhere
// (golang/go#24595).
type Stopwatch struct {
	base       time.Time
	suspension *suspension
}

// New starts one.
func New() Stopwatch {
	now := time.Now()
	return Stopwatch{now, newSuspension(now)}
}

// Now is the time since the stopwatch was made.
func (s Stopwatch) Now() Instant {
	now := time.Now()
	return Instant(now.Sub(s.base) + s.suspension.total(now))
}

// MaxTimer bounds how late the timers of a machine that was suspended notice that time has passed: they
// run on the clock that stood still.
const MaxTimer = time.Second
