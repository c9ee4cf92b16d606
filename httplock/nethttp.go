package httplock

import (
	"net/http"
	"strings"
)

// LockHandler is [Middleware.Lock] for net/http. It goes inside the router, which must have set r.Pattern and what
// r.PathValue returns, as http.ServeMux and chi (v5.3 or newer) do:
//
//	mux.Handle("PUT /orders/{id}", m.LockHandler(update))
//
// Around a router, where neither is known, it answers every request that it would lock with 500. The method of a
// pattern is no part of the key. Where routers are mounted in one another, the pattern is that of the innermost: routes
// that have the same there share keys, unless each has a WithScope of its own.
func (m *Middleware) LockHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.lock(plainHost{w, r, next}, w, r)
	})
}

// OnceHandler is [Middleware.Once] for net/http, under the conditions of LockHandler:
//
//	mux.Handle("POST /orders/{id}/payments", m.OnceHandler(m.LockHandler(pay)))
func (m *Middleware) OnceHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.once(plainHost{w, r, next}, w, r)
	})
}

// A plainHost is the entrance for net/http.
type plainHost struct {
	w    http.ResponseWriter
	r    *http.Request
	next http.Handler
}

// template is the pattern without its method.
func (h plainHost) template() string {
	return strings.TrimLeft(h.r.Pattern[strings.IndexAny(h.r.Pattern, " \t")+1:], " \t")
}

func (h plainHost) param(name string) (string, bool) {
	value := h.r.PathValue(name)
	if value != "" {
		return value, true
	}
	for _, end := range []string{"}", "...}", ":"} { // {id}, {id...}, {id:regexp}: it is empty
		if strings.Contains(h.r.Pattern, "{"+name+end) {
			return "", true
		}
	}
	return "", false
}

// unmatched: the middleware is around the router, which would not have called it otherwise.
func (h plainHost) unmatched() (skip bool) { return false }

func (h plainHost) proceed() { h.next.ServeHTTP(h.w, h.r) }

func (h plainHost) run(w *response, r *http.Request) {
	defer adopt(h.r, r)
	h.next.ServeHTTP(w, r)
}

func (h plainHost) answer(status int, body []byte) {
	h.w.WriteHeader(status)
	if len(body) > 0 {
		_, _ = h.w.Write(body) // the client may be gone
	}
}

func (h plainHost) refuse(x *exchange, r Refusal) {
	if r.Kind == EventMisconfigured {
		x.m.locker.Logger().Error("httplock: misconfigured", "route", x.route, "err", r.Err) // nothing but a look at the routes helps
	}
	x.m.httpReply(h.w, h.r, r)
}
