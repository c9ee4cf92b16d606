package httplock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/gate"
)

// An admission bounds, counts and drains the requests of all Middlewares derived from one New.
type admission struct {
	inside   gate.Gate       // requests that wait or run, and what goes on in the background after them
	draining context.Context // ends when the server drains
	drain    context.CancelCauseFunc

	bodies     chan struct{} // that are being read
	maxWaiters int           // for any key
	mu         sync.Mutex
	waiters    map[string]int           // by key; anyKey has all of them
	runs       map[string]time.Duration // how long those of a route take, the latest ones above all
}

const anyKey = "" // is the key of none

// errDraining is of class closed: this process takes no more requests.
var errDraining = fmt.Errorf("httplock: draining: %w", core.ErrClosed)

func newAdmission(maxWaiters, maxBodies int) *admission {
	a := &admission{maxWaiters: maxWaiters, bodies: make(chan struct{}, max(maxBodies, 0)), waiters: map[string]int{}, runs: map[string]time.Duration{}}
	a.draining, a.drain = context.WithCancelCause(context.Background()) //nolint:forbidigo // lives until Close
	return a
}

// addWaiter counts one more that waits for key, or returns why it must not.
func (a *admission) addWaiter(key string, most int) core.EventKind {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.waiters[anyKey] >= a.maxWaiters:
		return EventOverloaded
	case a.waiters[key] >= most:
		return EventQueueFull
	}
	a.waiters[anyKey]++
	a.waiters[key]++
	return ""
}

// removeWaiter takes addWaiter back.
func (a *admission) removeWaiter(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiters[anyKey]--
	if a.waiters[key]--; a.waiters[key] == 0 {
		delete(a.waiters, key)
	}
}

// noteRun notes how long a run took.
func (a *admission) noteRun(route string, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, known := a.runs[route]; known {
		d = (3*before + d) / 4
	}
	a.runs[route] = d
}

// usualRun returns how long a run of the route takes, and 0 where none has been seen.
func (a *admission) usualRun(route string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs[route]
}
