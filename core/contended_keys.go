package core

import (
	"maps"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// A call for several keys asks for all of them at once. If others wait for one of them, that request takes the key for
// a moment at a time when the waiter could have got it. So the keys that a call had to wait for lately are remembered,
// and are asked for only by calls that wait.

const (
	contendedFor = time.Second
	maxContended = 256
)

// The contendedKeys are the keys for which calls of this process that want several keys had to wait lately.
type contendedKeys struct {
	mu    sync.Mutex
	until map[string]clock.Instant // by resource
}

// add remembers a key.
func (c *contendedKeys) add(resource string, now clock.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until = map[string]clock.Instant{}
	}
	if len(c.until) >= maxContended {
		maps.DeleteFunc(c.until, func(_ string, until clock.Instant) bool { return until <= now })
	}

	_, known := c.until[resource]
	if known || len(c.until) < maxContended {
		c.until[resource] = now.Add(contendedFor)
	}
}

// has reports whether a call had to wait for the key lately.
func (c *contendedKeys) has(resource string, now clock.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.until[resource] > now
}
