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
	m := Middleware{config: defaults, service: service, locker: locker, admission: &admission{used: map[counted]int{}}}
	m.admission.draining, m.admission.drain = context.WithCancelCause(context.Background()) //nolint:forbidigo // lives until Close
	return m.With(opts...)
}

// With returns a Middleware with other options. It shares service, memory, the bound on all waiting requests, Drain and Close
// with m.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	d := *m
	d.key, d.parts = nil, nil // what makes the key replaces what made it before
	faults.Set(&d.faults, &d.config, opts)
	d.faults.Check(d.key != nil && d.parts != nil, "ByKey makes all of the key: give no other part of it")
	d.faults.Check(d.retention < time.Second, "a retention of %v: must be at least 1s", d.retention)
	d.faults.Check(d.maxWait < 0, "a max wait of %v: must not be negative", d.maxWait)
	d.faults.Check(d.maxWaiters < 1, "max waiters is %d: must be at least 1; if none is to wait, give WithMaxWait(0)", d.maxWaiters)
	d.faults.Check(d.bodyLimit < 0, "a body limit of %d bytes: must not be negative", d.bodyLimit)
	d.faults.Check(d.memory < d.bodyLimit, "a memory of %d bytes is less than one body may take, %d", d.memory, d.bodyLimit)
	d.faults.Check(d.reply == nil, "WithReply: the function is nil")
	if !d.hasKey() {
		d.key, d.parts = m.key, m.parts
	}
	d.faults.Check(!d.hasKey() && !d.idempotency, "nothing makes a key: give ByParam, ByJSON, ByFunc, ByKey or WithIdempotency")
	d.faults.Check(d.service == "", "the service name is empty: it keeps the requests of services that share nodes apart")
	d.maxWaitersTotal = cmp.Or(m.maxWaitersTotal, max(16*d.maxWaiters, d.maxWaiters)) // also where that overflows

	var err error // a handler may outlast its request
	d.locker, err = m.locker.With(core.Detached(true), core.Retention(max(d.retention, time.Second)))
	d.faults.Check(err != nil, "%w", err)
	if err := d.faults.Err("httplock"); err != nil {
		return nil, err
	}
	return &d, nil
}

// Drain refuses new requests, and those that wait, with 503. Handlers that run are left alone. Drain does not wait, and
// suits http.Server.RegisterOnShutdown: Shutdown then need not wait for requests that wait for a key.
func (m *Middleware) Drain() {
	m.admission.inside.Close()
	m.admission.drain(errDraining)
}

// Close drains, and waits until no handler runs and every key was released. If ctx ends first, the error is its cause and
// says how many requests are left; these keep their keys until they are over. Close also ends all Middlewares that With
// returned. It does not close the Locker: do that afterwards.
func (m *Middleware) Close(ctx context.Context) error {
	m.Drain()
	if err := m.admission.inside.Wait(ctx); err != nil {
		return fmt.Errorf("httplock: %w, with %d requests under way", err, m.admission.inside.Inside())
	}
	return nil
}
