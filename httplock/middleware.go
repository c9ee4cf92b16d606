package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// A Middleware locks requests. It serves any number of routes, whose keys differ by themselves, and is safe
// for concurrent use. Its options never change: routes that need others use another one, see With.
type Middleware struct {
	config
	locks *core.Locker
	opts  []core.Option // of its leases, but for the name, which is the route's
	house *house
}

// New returns a Middleware that locks on locks, which the caller keeps owning. TTL and whatever else belongs
// to leases is set there. The error names every fault of the options.
func New(locks *core.Locker, opts ...Option) (*Middleware, error) {
	if locks == nil {
		return nil, errors.New("httplock: locks is nil")
	}
	conf := defaults().with(opts)
	return build(locks, conf, newHouse(conf.total), nil)
}

// With derives a Middleware with other options. It shares its keys, the count of all that wait, and Drain and
// Close with m.
func (m *Middleware) With(opts ...Option) (*Middleware, error) {
	conf := m.config.with(opts)
	var shared error
	if conf.total != m.total {
		shared = errors.New("max waiting in total is set by New for all")
	}
	return build(m.locks, conf, m.house, shared)
}

func build(locks *core.Locker, conf config, house *house, shared error) (*Middleware, error) {
	m := &Middleware{config: conf, locks: locks, house: house}
	m.opts = []core.Option{core.WithDetachedLease(false), core.WithMaxWait(m.maxWait)}
	if m.maxHold > 0 {
		m.opts = append(m.opts, core.WithMaxHold(m.maxHold))
	}
	if m.idempotency != idempotencyOff {
		m.opts = append(m.opts, core.WithRetention(m.retention), core.WithResultLimit(recordLimit))
	}
	err := errors.Join(conf.check(), shared)
	if err == nil {
		_, err = locks.With(m.opts...)
	}
	if err != nil {
		return nil, fmt.Errorf("httplock: %w", err)
	}
	return m, nil
}

// Lock is the middleware: a gin.HandlerFunc for a route or a group. It lets the handlers after it run while
// this request has its key, and answers in their place where it cannot have it: see [Kind] for all replies.
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
	if full := m.house.enter(); full != "" {
		x.refuse(refusal(full, nil))
		return
	}
	defer m.house.leave()
	defer x.end()
	if x.wait() {
		x.run()
	}
}

// skips: the request is not to be locked. No header can make that of a method that changes something.
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

// lasts: the request is for a WebSocket or server-sent events.
func lasts(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" || strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}
