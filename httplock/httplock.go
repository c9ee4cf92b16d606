package httplock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A Middleware has two middlewares, Lock and Once, each as a gin.HandlerFunc and for net/http. It serves any number of
// routes, whose keys differ by themselves, and is safe for concurrent use. Its options never change: routes that need
// others use another one, see With.
type Middleware struct {
	config
	service   string
	locker    *core.Locker
	opts      []core.CallOption // of its leases, but for the name, which is the route's
	admission *admission
}

// New returns a Middleware that locks on locker, which the caller keeps owning. TTL and whatever else belongs
// to leases is set there. Keys belong to the service of that name, but for those of [ByKey]: replicas of one service share
// it, others that use the same nodes have another. The error names every fault of the options.
func New(locker *core.Locker, service string, opts ...Option) (*Middleware, error) {
	conf := defaults().with(opts)
	conf.faults.Check(service == "", "the service's name is empty: it keeps the requests of services apart that share nodes")
	m := &Middleware{config: conf, service: service, locker: locker, admission: newAdmission(conf.maxWaitersTotal, conf.maxBodies)}
	return m.build()
}

// With derives a Middleware with other options. It shares its service and keys, the count of all that wait, and Drain and
// Close with m.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	d := *m
	d.config = m.config.with(opts)
	return d.build()
}

func (m *Middleware) build() (*Middleware, error) {
	m.opts = []core.CallOption{core.Detached(true), core.Retention(max(m.retention, time.Second))} // a handler may outlast its request
	if m.maxHold > 0 {
		m.opts = append(m.opts, core.MaxHold(m.maxHold))
	}
	m.check(m.admission)
	_, err := m.locker.With(m.opts...) // also where there is no Locker
	m.faults.Check(err != nil, "%w", err)
	if err := m.faults.Err("httplock"); err != nil {
		return nil, err
	}
	return m, nil
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
