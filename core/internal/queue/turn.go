package queue

import (
	"sync/atomic"

	"github.com/lockkit/lockkit/core/internal/node"
)

// A Turn is the place of one caller in the queue of a key.
type Turn struct {
	Ready     chan struct{}             // closed when the caller has the turn
	Request   func(release *node.Round) // sends the first request of the caller together with a release, before Ready is closed
	Requested bool                      // Request was called; written before Ready is closed

	number uint64       // in its keyQueue
	state  atomic.Int32 // a turn state; it changes once, from turnWaiting
}

// The owner that passes a turn on and a caller that gives up can meet. The first of them to change the state decides.
const (
	turnWaiting   int32 = iota
	turnPassed          // the caller has the turn, or is about to get it
	turnAbandoned       // the caller has given up
)

// resolve changes the state of a waiting turn, and reports whether the turn was waiting.
func (t *Turn) resolve(state int32) bool { return t.state.CompareAndSwap(turnWaiting, state) }

func (t *Turn) isAbandoned() bool { return t.state.Load() == turnAbandoned }
