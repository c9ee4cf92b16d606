package history

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// linearSteps bounds the search for one key, in steps of the model: some five
// seconds of an idle processor. Legal histories take thousands; only bad or very contended ones come
// near it. It does not depend on how busy the machine is.
const linearSteps = 10_000_000

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

// takes is one step of a lock with leases and fencing tokens. It reports whether
// the lock can take it. An expiry is an unlock at the end of the validity.
func takes(s lockState, op lockOp) (bool, lockState) {
	if op.unlock {
		ok := s.held && s.holder == op.holder && s.token == op.token
		return ok, lockState{token: s.token}
	}
	return !s.held && op.token > s.token, lockState{op.holder, op.token, true}
}

// leaseLock returns the model of such a lock, which refuses every step when the
// bound is reached: the search then ends soon, and its result means nothing.
func leaseLock(taken *int, bound int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) {
			*taken++
			if *taken > bound {
				return false, state
			}
			return takes(state.(lockState), input.(lockOp))
		},
	}
}

// linearizable looks for an order of all grants and ends, each within its
// interval, that the sequential lock could have gone through. It gives up after
// so many steps.
func (c *checker) linearizable(steps int) {
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
		if w.endsBefore(w.start.at) {
			continue // nothing was held at any time
		}
		add(lockOp{w.lease, false}, w.start.at, w.at.at)
		if w.ended {
			add(lockOp{w.lease, true}, w.end, w.end)
		}
	}

	taken := 0
	legal := porcupine.CheckOperations(leaseLock(&taken, steps), ops)

	switch {
	case legal:
	case taken > steps:
		c.unknown = true
	default:
		c.fail(ruleLinear, "no order of the %d grants explains their tokens and times", len(c.windows))
	}
}
