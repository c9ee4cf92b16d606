package stage

import (
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"
)

// A Clock is the real one, but ahead of it.
type Clock struct {
	clockwork.Clock
	ahead atomic.Int64
}

// NewClock returns a clock that is ahead by so much.
func NewClock(ahead time.Duration) *Clock {
	c := &Clock{Clock: clockwork.NewRealClock()}
	c.Skew(ahead)
	return c
}

// Skew has the clock be ahead by so much from now on. Timers that run are left alone.
func (c *Clock) Skew(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.ahead.Load())) }
