package httplock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
)

// A Middleware locks requests. It serves any number of routes, whose keys differ by themselves, and is safe for concurrent
// use. Its options never change: routes that need others use another one, see With.
type Middleware struct {
	config
	service   string
	locker    *core.Locker
	admission *admission
}

// New returns a Middleware that locks on locker, which the caller keeps owning; the TTL and what else belongs to leases is
// set there. Keys belong to the service of that name, except those of [ByKey]. Replicas of one service use the same name,
// and services that share nodes use different names. The error names everything that is wrong with the options.
func New(locker *core.Locker, service string, opts ...Option) (*Middleware, error) {
	m := Middleware{config: defaults, service: service, locker: locker, admission: &admission{used: map[counter]int{}}}
	m.admission.drainCtx, m.admission.startDrain = context.WithCancelCause(context.Background()) //nolint:forbidigo // lives until Close
	return m.With(opts...)
}

// With returns a Middleware with other options. It shares service, memory, the bound on all waiting requests, Drain and Close
// with m.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	derived := *m
	derived.wholeKey, derived.keyParts = nil, nil // what makes the key replaces what made it before
	faults.Set(&derived.faults, &derived.config, opts)
	derived.faults.Check(derived.wholeKey != nil && derived.keyParts != nil, "ByKey makes all of the key: give no other part of it")
	derived.faults.Check(derived.retention < time.Second, "a retention of %v: must be at least 1s", derived.retention)
	derived.faults.Check(derived.maxWait < 0, "a max wait of %v: must not be negative", derived.maxWait)
	derived.faults.Check(derived.maxWaiters < 1, "max waiters is %d: must be at least 1; if none is to wait, give WithMaxWait(0)", derived.maxWaiters)
	derived.faults.Check(derived.bodyLimit < 0, "a body limit of %d bytes: must not be negative", derived.bodyLimit)
	derived.faults.Check(derived.memory < derived.bodyLimit, "a memory of %d bytes is less than one body may take, %d", derived.memory, derived.bodyLimit)
	derived.faults.Check(derived.reply == nil, "WithReply: the function is nil")
	if !derived.hasKey() {
		derived.wholeKey, derived.keyParts = m.wholeKey, m.keyParts
	}
	derived.faults.Check(!derived.hasKey() && !derived.idempotency, "nothing makes a key: give ByParam, ByJSON, ByFunc, ByKey or WithIdempotency")
	derived.faults.Check(derived.service == "", "the service name is empty: it keeps the requests of services that share nodes apart")
	derived.maxWaitersTotal = cmp.Or(m.maxWaitersTotal, max(16*derived.maxWaiters, derived.maxWaiters)) // also where that overflows

	var err error // a handler may outlast its request
	derived.locker, err = m.locker.With(core.Detached(true), core.Retention(max(derived.retention, time.Second)))
	derived.faults.Check(err != nil, "%w", err)
	if err := derived.faults.Err("httplock"); err != nil {
		return nil, err
	}
	return &derived, nil
}

// Drain refuses new requests, and those that wait, with 503. Handlers that run are left alone. Drain does not wait, and
// suits http.Server.RegisterOnShutdown: Shutdown then need not wait for requests that wait for a key.
func (m *Middleware) Drain() {
	m.admission.gate.Close()
	m.admission.startDrain(errDraining)
}

// Close drains, and waits until no handler runs and every key was released. If ctx ends first, the error is its cause and
// says how many requests are left; these keep their keys until they are over. Close also ends all Middlewares that With
// returned. It does not close the Locker: do that afterwards.
func (m *Middleware) Close(ctx context.Context) error {
	m.Drain()
	if err := m.admission.gate.Wait(ctx); err != nil {
		return fmt.Errorf("httplock: %w, with %d requests under way", err, m.admission.gate.Inside())
	}
	return nil
}
