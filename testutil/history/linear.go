package history

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// maxLinearSteps bounds the search for one key, in steps of the model: about
// five seconds on an idle processor. Legal histories take thousands of steps;
// only bad or very contended ones come near the bound. A bound in steps does
// not depend on the load of the machine.
const maxLinearSteps = 10_000_000

// lockState is the state of a sequential lock: its holder, if it is held, and its last token.
type lockState struct {
	holder string
	token  uint64
	held   bool
}

// lockOp is a grant, or the end of a lease if unlock is true.
type lockOp struct {
	lease
	unlock bool
}

// apply reports whether a lock with leases and fencing tokens can execute op in
// state s, and returns the state after it. An expiry is an unlock at the end of
// the validity.
func apply(s lockState, op lockOp) (bool, lockState) {
	if op.unlock {
		isHolder := s.held && s.holder == op.holder && s.token == op.token
		return isHolder, lockState{token: s.token}
	}
	return !s.held && op.token > s.token, lockState{op.holder, op.token, true}
}

// leaseLock returns a model of such a lock, which counts its steps in taken. It
// refuses every step after bound: the search then ends soon, and its result
// means nothing.
func leaseLock(taken *int, bound int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) {
			*taken++
			if *taken > bound {
				return false, state
			}
			return apply(state.(lockState), input.(lockOp))
		},
	}
}

// checkLinearizable looks for an order of all grants and ends, each within its
// interval, that a sequential lock allows. After maxSteps it gives up and sets
// c.unknown.
func (c *checker) checkLinearizable(maxSteps int) {
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
			continue // it ended before its attempt began, so it was never held
		}

		// The lock granted the lease at some instant of the attempt. The end is known exactly.
		add(lockOp{w.lease, false}, w.start.at, w.at.at)
		if w.ended {
			add(lockOp{w.lease, true}, w.end, w.end)
		}
	}

	taken := 0
	legal := porcupine.CheckOperations(leaseLock(&taken, maxSteps), ops)

	switch {
	case legal:
	case taken > maxSteps:
		c.unknown = true
	default:
		c.fail(ruleLinear, "no order of the %d grants explains their tokens and times", len(c.windows))
	}
}
