package core

import "time"

// A stopwatch is the client's only source of time for leases: monotonic, and running on while the machine
// is suspended, which Go's monotonic clock does not do everywhere (golang/go#24595).
type stopwatch struct {
	base       time.Time
	suspension *suspension
}

func newStopwatch() stopwatch {
	now := time.Now()
	return stopwatch{now, newSuspension(now)}
}

// now is the time since the stopwatch was made.
func (s stopwatch) now() instant {
	now := time.Now()
	return instant(now.Sub(s.base) + s.suspension.total(now))
}

// longestNap bounds how late the timers of a machine that was suspended notice that time has passed: they
// run on the clock that stood still.
const longestNap = time.Second
