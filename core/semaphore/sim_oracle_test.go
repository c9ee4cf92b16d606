package semaphore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/sim"
)

// A holder has a permit for a key, or the plain lock, which is slot 0 of one, alone or in a set.
type holder struct {
	name  string
	key   string
	k     int
	slot  int
	ctx   context.Context
	token uint64
}

// An oracle judges a simulation.
type oracle struct {
	*sim.Trial
	slots sim.Exclusion // one holder of a slot at a time

	mu      sync.Mutex
	holders map[*holder]bool
	tokens  map[string]uint64 // the greatest of each slot, by its name
	failing bool              // a node has failed
}

// enter records a holder, until it calls leave. Of the holders of a key with live contexts there are never more than the
// largest k.
func (o *oracle) enter(h *holder) (leave func()) {
	slotName := fmt.Sprintf("slot %d of %s", h.slot, h.key)
	leaveSlot := o.slots.Enter(o.Trial, h.ctx, slotName, h.name)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Count("held")
	if h.slot >= h.k {
		o.Violation("%s has %s, of %d", h.name, slotName, h.k)
	}

	if o.holders == nil {
		o.holders = map[*holder]bool{}
		o.tokens = map[string]uint64{}
	}
	if h.token <= o.tokens[slotName] {
		o.Violation("%s has token %d in %s after %d", h.name, h.token, slotName, o.tokens[slotName])
	}
	o.tokens[slotName] = max(o.tokens[slotName], h.token)
	o.holders[h] = true
	live, largest := 0, 0
	for other := range o.holders {
		if other.key == h.key && other.ctx.Err() == nil {
			live++
			largest = max(largest, other.k)
		}
	}
	if live > largest {
		o.Violation("%d hold %s at a time, and the largest k is %d", live, h.key, largest)
	}
	if live > 1 && live == largest {
		o.Count("as many as there may be")
	}
	return func() {
		leaveSlot()
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.holders, h)
	}
}

// refused judges the error of a call that got no permit.
func (o *oracle) refused(p *replica, step sim.Step, ctx context.Context, err error) {
	isBounded := step.With["try"] > 0 || step.With["wait"] > 0
	isFaulty := o.isFaulty()
	class := core.ClassOf(err)
	o.Count("refused: " + class.String())
	switch class {
	case core.ClassHeld:
		if !isBounded {
			o.Violation("replica %s: a call without a limit was not served: %v", p.name, err)
		}
	case core.ClassUnavailable:
		if !isFaulty && !(isBounded && ctx.Err() == nil) {
			o.Violation("replica %s: unavailable, and no node has failed: %v", p.name, err)
		}
	case core.ClassCancelled:
		if ctx.Err() == nil {
			o.Violation("replica %s: cancelled, and the caller has not left: %v", p.name, err)
		}
	case core.ClassClosed:
		select {
		case <-p.Closing():
		default:
			o.Violation("replica %s: closed, and is not: %v", p.name, err)
		}
	default:
		o.Violation("replica %s: %v", p.name, err)
	}
	op, ok := errors.AsType[*core.OpError](err)
	if !ok || !slices.Contains(keysOf(step), op.Key) {
		o.Violation("replica %s: the error is not on one of %q: %v", p.name, keysOf(step), err)
	}
}

// released judges the error of a release.
func (o *oracle) released(p *replica, err error) {
	switch class := core.ClassOf(err); class {
	case core.ClassNone, core.ClassLost, core.ClassUnavailable, core.ClassClosed:
		o.Count("released: " + class.String())
	default:
		o.Violation("%s: release: %v", p.name, err)
	}
}

// trouble records a fault of a node.
func (o *oracle) trouble(sim.Step) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing = true
}

// isFaulty reports whether a node or the network has failed.
func (o *oracle) isFaulty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failing || o.Is("lost") > 0 || o.Is("late") > 0
}

// mustReach has the events that a hundred programs reach together.
var mustReach = []string{
	"held", "as many as there may be", "refused: held", "refused: cancelled", "refused: unavailable", "refused: closed",
	"ended while it was held", "not released", "released: lost", "plain", "acquire", "set", "change k", "kill", "close",
	"down", "hang", "slow", "restart", "restart empty", "flush", "drop replies",
}
