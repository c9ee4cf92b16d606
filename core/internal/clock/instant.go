package clock

import (
	"math"
	"sync/atomic"
	"time"
)

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

func (a *AtomicInstant) Load() Instant   { return Instant(a.v.Load()) }
func (a *AtomicInstant) Store(t Instant) { a.v.Store(int64(t)) }
