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
	inside   gate.Gate       // requests that wait or run, and what goes on in the background after them
	draining context.Context // ends when the server drains
	drain    context.CancelCauseFunc

	maxWaiters int // for any key
	mu         sync.Mutex
	waiters    map[string]int // by key; anyKey has all of them
}

const anyKey = "" // is the key of none

// errDraining is of class closed: this process takes no more requests.
var errDraining = fmt.Errorf("httplock: draining: %w", core.ErrClosed)

func newAdmission(maxWaiters int) *admission {
	a := &admission{maxWaiters: maxWaiters, waiters: map[string]int{}}
	a.draining, a.drain = context.WithCancelCause(context.Background()) //nolint:forbidigo // lives until Close
	return a
}

// enter admits a request, which waits from then on, or returns why it does not.
func (a *admission) enter() core.EventKind {
	if !a.inside.Enter() {
		return EventDraining
	}
	if !a.addWaiter(anyKey, a.maxWaiters) {
		a.inside.Leave()
		return EventOverloaded
	}
	return ""
}

// addWaiter reports whether fewer than most wait for key, and counts one more if so.
func (a *admission) addWaiter(key string, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiters[key] >= most {
		return false
	}
	a.waiters[key]++
	return true
}

// removeWaiter takes addWaiter back.
func (a *admission) removeWaiter(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiters[key]--; a.waiters[key] == 0 {
		delete(a.waiters, key)
	}
}

// Drain refuses requests from now on and sends those home that wait, all with 503. Handlers that run are left
// alone. It does not wait; it suits http.Server.RegisterOnShutdown, so that Shutdown need not wait for those who
// wait for a key.
func (m *Middleware) Drain() {
	m.admission.inside.Close()
	m.admission.drain(errDraining)
}

// Close drains, and waits until no handler runs and every key was given back. When ctx ends first, the error
// is its cause and says how many requests are left; these keep their keys until they are over. It ends all
// that With derived, too, and does not close the core.Locker: do that afterwards.
func (m *Middleware) Close(ctx context.Context) error {
	m.Drain()
	if err := m.admission.inside.Wait(ctx); err != nil {
		return fmt.Errorf("httplock: %w, with %d requests under way", err, m.admission.inside.Inside())
	}
	return nil
}
