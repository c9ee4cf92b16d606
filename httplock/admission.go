package httplock

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/gate"
)

// An admission bounds, counts and drains the requests of all Middlewares derived from one New.
type admission struct {
	gate       gate.Gate       // requests, and what goes on in the background after them
	drainCtx   context.Context // ends when the server drains
	startDrain context.CancelCauseFunc

	mu   sync.Mutex
	used map[counter]int // waiting requests by key, and of all; bytes of memory
}

// What is counted is the waiting requests of a key, or a total.
type counter struct{ key, name string }

var waiterCount, memoryUse = counter{name: "waiters"}, counter{name: "memory"} // of bodies and answers

// errDraining is of class closed: this process takes no more requests.
var errDraining = fmt.Errorf("httplock: draining: %w", core.ErrClosed)

// use takes n of what, or gives -n back, and reports whether that leaves no more than most in use. If not, nothing is taken.
func (a *admission) use(what counter, n, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n >= 0 && a.used[what] > most-n {
		return false
	}
	if a.used[what] += n; a.used[what] == 0 {
		delete(a.used, what)
	}
	return true
}
