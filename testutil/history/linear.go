package history

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// linearTimeout bounds the search for one key. Legal histories take
// milliseconds; only bad or very contended ones come near it.
const linearTimeout = 5 * time.Second

// lockState is the sequential lock: who holds it, and its last token.
type lockState struct {
	holder string
	token  uint64
	held   bool
}

type lockOp struct {
	lease
	unlock bool
}

// leaseLock is a lock with leases and fencing tokens. An expiry is an unlock
// at the end of the validity.
var leaseLock = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, op := state.(lockState), input.(lockOp)
		if op.unlock {
			ok := s.held && s.holder == op.holder && s.token == op.token
			return ok, lockState{token: s.token}
		}
		return !s.held && op.token > s.token, lockState{op.holder, op.token, true}
	},
}

// linearizable looks for an order of all grants and ends, each within its
// interval, that the sequential lock could have gone through.
func (c *checker) linearizable() {
	var ops []porcupine.Operation
	add := func(op lockOp, call, ret time.Time) {
		ops = append(ops, porcupine.Operation{
			ClientId: len(ops),
			Input:    op,
			Call:     call.Sub(c.zero).Nanoseconds(),
			Return:   ret.Sub(c.zero).Nanoseconds(),
		})
	}
	for _, w := range c.windows {
		if w.ended && w.end.Before(w.start.at) {
			continue // nothing was held at any time
		}
		add(lockOp{w.lease, false}, w.start.at, w.at.at)
		if w.ended {
			add(lockOp{w.lease, true}, w.end, w.end)
		}
	}
	switch porcupine.CheckOperationsTimeout(leaseLock, ops, linearTimeout) {
	case porcupine.Illegal:
		c.fail(ruleLinear, "no order of the %d grants explains their tokens and times", len(c.windows))
	case porcupine.Unknown:
		c.unknown = true
	case porcupine.Ok:
	}
}
