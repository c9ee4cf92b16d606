package httplock

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/gate"
)

// An admission bounds, counts and drains the requests of all Middlewares derived from one New.
type admission struct {
	inside   gate.Gate       // requests that wait or run, and what goes on in the background after them
	draining context.Context // ends when the server drains
	drain    context.CancelCauseFunc

	mu      sync.Mutex
	waiters map[string]int // by key; anyKey has all of them
	memory  int            // that is left for bodies and answers, in bytes
}

const anyKey = "" // is the key of none

// errDraining is of class closed: this process takes no more requests.
var errDraining = fmt.Errorf("httplock: draining: %w", core.ErrClosed)

func newAdmission(memory int) *admission {
	a := &admission{waiters: map[string]int{}, memory: memory}
	a.draining, a.drain = context.WithCancelCause(context.Background()) //nolint:forbidigo // lives until Close
	return a
}

// join counts one more that waits for key, if that makes no more than most, and reports whether it does.
func (a *admission) join(key string, most int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiters[key] >= most {
		return false
	}
	a.waiters[key]++
	return true
}

// leave takes join back.
func (a *admission) leave(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiters[key]--; a.waiters[key] == 0 {
		delete(a.waiters, key)
	}
}

// use takes memory for the request, until its end or until it is given back, and reports whether there was so much.
func (x *exchange) use(bytes int) (enough bool) {
	if x == nil {
		return true
	}
	a := x.m.admission
	a.mu.Lock()
	defer a.mu.Unlock()
	x.memory += bytes
	a.memory -= bytes
	return a.memory >= 0
}

// A metered body takes memory for what has come of it, and not for what its client has announced.
type metered struct {
	io.Reader
	x *exchange
}

func (b metered) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if !b.x.use(n) {
		return n, overloaded
	}
	return n, err
}
