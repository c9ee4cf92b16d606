package httplock

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// A Middleware locks requests. It serves any number of routes, whose keys differ by themselves, and is safe
// for concurrent use. Its options never change: routes that need others use another one, see With.
type Middleware struct {
	config
	locker    *core.Locker
	opts      []core.CallOption // of its leases, but for the name, which is the route's
	admission *admission
}

// New returns a Middleware that locks on locker, which the caller keeps owning. TTL and whatever else belongs
// to leases is set there. The error names every fault of the options.
func New(locker *core.Locker, opts ...Option) (*Middleware, error) {
	conf := defaults().with(opts)
	return build(locker, conf, newAdmission(conf.maxWaitersTotal))
}

// With derives a Middleware with other options. It shares its keys, the count of all that wait, and Drain and
// Close with m.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	return build(m.locker, m.config.with(opts), m.admission)
}

func build(locker *core.Locker, conf config, a *admission) (*Middleware, error) {
	opts := []core.CallOption{core.Linger(core.Forever)} // a handler may outlast its request
	if conf.maxHold > 0 {
		opts = append(opts, core.MaxHold(conf.maxHold))
	}
	if conf.idempotency != idempotencyOff {
		opts = append(opts, core.Retention(conf.retention))
	}
	conf.check(a.maxWaiters)
	_, err := locker.With(opts...) // also where there is no Locker
	conf.faults.Check(err != nil, "%w", err)
	if err := conf.faults.Err("httplock"); err != nil {
		return nil, err
	}
	return &Middleware{conf, locker, opts, a}, nil
}

// Lock is the middleware: a gin.HandlerFunc for a route or a group. It lets the handlers after it run while
// this request has its key, and answers in their place where it cannot have it: the refusals are listed from
// [EventBusy] on.
//
// c.Request.Context() ends when the lease is lost, and when the request's own context ends; core.FromContext
// finds the lease in it. The context of an idempotent request does not end when its client goes away, because
// a repetition will ask for its outcome.
func (m *Middleware) Lock(c *gin.Context) {
	if m.skips(c) {
		c.Next()
		return
	}
	x := m.exchange(c)
	if kind := m.admission.enter(); kind != "" {
		x.refuse(kind, nil)
		return
	}
	defer m.admission.inside.Leave()
	defer x.end()
	if x.wait() {
		x.run()
	}
}

// skips reports whether the request is not to be locked. No header can make that of a method that changes something.
func (m *Middleware) skips(c *gin.Context) bool {
	if c.FullPath() == "" { // not found; gin may have left parameters of a route that nearly fitted
		return true
	}
	switch c.Request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return !m.safeMethods || m.maxHold == 0 && lasts(c.Request)
	}
	return false
}

// lasts reports whether the request is for a WebSocket or server-sent events.
func lasts(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" || strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}
