package httplock

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/gate"
)

// An admission limits, counts and drains the requests of all Middlewares that are derived from one New.
type admission struct {
	gate       gate.Gate       // counts the requests, and the background work that they leave behind
	drainCtx   context.Context // ends when Drain is called
	startDrain context.CancelCauseFunc

	mu   sync.Mutex // guards used
	used map[counter]int
}

// A counter is a key of admission.used: the waiting requests of one key, or a total with a name.
type counter struct{ key, name string }

var (
	waiterCount = counter{name: "waiters"} // waiting requests of all keys
	memoryUse   = counter{name: "memory"}  // bytes of request bodies and buffered responses
)

// errDraining is of class closed: this process accepts no more requests.
var errDraining = fmt.Errorf("httplock: draining: %w", core.ErrClosed)

func newAdmission() *admission {
	drainCtx, startDrain := context.WithCancelCause(context.Background()) //nolint:forbidigo // lives until Close
	return &admission{drainCtx: drainCtx, startDrain: startDrain, used: map[counter]int{}}
}

// reserve adds n to the counter unless the sum would exceed limit. It reports whether it has added n.
func (a *admission) reserve(c counter, n, limit int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.used[c] > limit-n {
		return false
	}
	a.add(c, n)
	return true
}

// release subtracts n from the counter.
func (a *admission) release(c counter, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.add(c, -n)
}

// isExceeded reports whether the counter is greater than limit.
func (a *admission) isExceeded(c counter, limit int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.used[c] > limit
}

// add adds n to the counter. Counters that are zero leave the map, because keys may be many. a.mu must be held.
func (a *admission) add(c counter, n int) {
	a.used[c] += n
	if a.used[c] == 0 {
		delete(a.used, c)
	}
}
