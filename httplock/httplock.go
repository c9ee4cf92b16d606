package httplock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
)

// A Middleware locks requests. It serves any number of routes, because a key contains the route, and is safe for
// concurrent use. Its options never change: for a route that needs other options, derive another Middleware by With.
type Middleware struct {
	config
	service   string
	locker    *core.Locker
	admission *admission // shared by all Middlewares that are derived from one New
}

// New returns a Middleware that locks on locker. The caller remains the owner of locker, and sets there the TTL and all
// else that belongs to leases. Every key contains the name of the service, except a key made by [ByKey]. Replicas of
// one service use the same name, and services that share nodes use different names. The error names every invalid
// option.
func New(locker *core.Locker, service string, opts ...Option) (*Middleware, error) {
	m := Middleware{config: defaults, service: service, locker: locker, admission: newAdmission()}
	return m.With(opts...)
}

// With returns a Middleware with the options of m and opts. It shares the service, the count of the memory in use, the
// limit on all waiting requests, Drain and Close with m.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	derived := *m

	// Options that make a key replace the key of m.
	derived.wholeKey = nil
	derived.keyParts = nil
	faults.Set(&derived.faults, &derived.config, opts)
	derived.checkOptions()

	// Without such an option, the key of m remains.
	if !derived.hasKey() {
		derived.wholeKey = m.wholeKey
		derived.keyParts = m.keyParts
	}
	derived.faults.Check(!derived.hasKey() && !derived.idempotency,
		"nothing makes a key: give ByParam, ByJSON, ByFunc, ByKey or WithIdempotency")
	derived.faults.Check(derived.service == "",
		"the service name is empty: it keeps the requests of services that share nodes apart")

	// New sets the limit on all waiting requests. The larger number is maxWaiters if the product overflows.
	derived.maxWaitersTotal = cmp.Or(m.maxWaitersTotal, max(16*derived.maxWaiters, derived.maxWaiters))

	// The leases are detached from the request, because a handler may outlast it.
	locker, err := m.locker.With(core.Detached(true), core.Retention(max(derived.retention, time.Second)))
	derived.faults.Check(err != nil, "%w", err)
	derived.locker = locker

	if err := derived.faults.Err("httplock"); err != nil {
		return nil, err
	}
	return &derived, nil
}

// Drain refuses new and waiting requests with 503. It does not affect handlers that run, and does not wait for them. If
// you pass it to http.Server.RegisterOnShutdown, Shutdown need not wait for requests that wait for a key.
func (m *Middleware) Drain() {
	m.admission.gate.Close()
	m.admission.startDrain(errDraining)
}

// Close calls Drain, and waits until no handler runs and every key is released. If ctx ends first, the error wraps its
// cause and gives the number of requests that are left. They keep their keys until they are over. Close also closes all
// Middlewares that With derived. It does not close the Locker: do that afterwards.
func (m *Middleware) Close(ctx context.Context) error {
	m.Drain()
	if err := m.admission.gate.Wait(ctx); err != nil {
		return fmt.Errorf("httplock: %w, with %d requests under way", err, m.admission.gate.Count())
	}
	return nil
}
