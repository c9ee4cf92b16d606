package httplock

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

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
	m := &Middleware{config: defaults(), service: service, locker: locker}
	var f faults.List
	f.Check(service == "", "the service name is empty: it keeps the requests of services that share nodes apart")
	m.apply(&f, opts)
	m.maxWaitersTotal = 16 * m.maxWaiters
	m.admission = newAdmission(m.memory)
	return m.build(&f)
}

// With returns a Middleware with other options. It shares service, memory, the bound on all waiting requests, Drain and Close
// with m.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	d := *m
	var f faults.List
	d.apply(&f, opts)
	f.Check(d.memory != m.memory, "WithMemory is an option of New: all that With returns shares it")
	return d.build(&f)
}

func (m *Middleware) build(f *faults.List) (*Middleware, error) {
	// A handler may outlast its request.
	own, err := m.locker.With(core.Detached(true), core.Retention(max(m.retention, time.Second)))
	f.Check(err != nil, "%w", err)
	if err := f.Err("httplock"); err != nil {
		return nil, err
	}
	m.locker = own
	return m, nil
}

// Drain refuses requests from now on, and those that wait, with 503. Handlers that run are left alone. It does not wait, and
// suits http.Server.RegisterOnShutdown: Shutdown then need not wait for requests that wait for a key.
func (m *Middleware) Drain() {
	m.admission.inside.Close()
	m.admission.drain(errDraining)
}

// Close drains, and waits until no handler runs and every key was released. If ctx ends first, the error is its cause and
// says how many requests are left; these keep their keys until they are over. It ends all that With returned, too, and does
// not close the Locker: do that afterwards.
func (m *Middleware) Close(ctx context.Context) error {
	m.Drain()
	if err := m.admission.inside.Wait(ctx); err != nil {
		return fmt.Errorf("httplock: %w, with %d requests under way", err, m.admission.inside.Inside())
	}
	return nil
}

// Lock is the middleware for gin: a gin.HandlerFunc for a route or a group. The handlers after it run under the leases of the
// request, with c.Request.Context() as the package document says. If the request cannot have them, Lock answers in their
// place: see [EventBusy] and what follows it.
func (m *Middleware) Lock(c *gin.Context) {
	x := exchange{m: m, gin: c, w: c.Writer, r: c.Request, route: c.FullPath()}
	x.serve(c.Next, func(w *response, r *http.Request) {
		writer, request := c.Writer, c.Request
		defer func() { c.Writer, c.Request = writer, request }() // also for what recovers from a panic further out
		c.Writer, c.Request = w, r
		c.Next()
	})
}

// LockHandler is Lock for net/http. It goes inside the router, which must have set r.Pattern and what r.PathValue returns, as
// http.ServeMux and chi (v5.3 or later) do:
//
//	mux.Handle("PUT /orders/{id}", m.LockHandler(update))
//
// Around a router, where neither is known, it answers every request that it would lock with 500. The method of a pattern is
// not a part of the key. If routers are mounted in one another, the pattern is that of the innermost: routes that have the
// same pattern there share keys, unless they use [ByKey].
func (m *Middleware) LockHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.Pattern[strings.IndexAny(r.Pattern, " \t")+1:]
		x := exchange{m: m, w: w, r: r, route: strings.TrimLeft(path, " \t")}
		x.serve(func() { next.ServeHTTP(w, r) }, func(w *response, r *http.Request) { next.ServeHTTP(w, r) })
	})
}
