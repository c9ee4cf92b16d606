package httplock

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// Lock is the middleware for gin: a gin.HandlerFunc for a route or a group. The handlers after it run under the leases of the
// request, with c.Request.Context() as the package document says. If the request cannot have them, Lock answers in their
// place: see [EventBusy] and what follows it.
//
// In Engine.NoRoute, where there is no route, Lock answers every request that it would lock with 500. So it does where
// Engine.Use has put it in front of handlers of NoRoute.
func (m *Middleware) Lock(c *gin.Context) {
	rs := requestState{m: m, gin: c, w: c.Writer, r: c.Request, route: ginRoute(c), outerStatus: c.Writer.Status()}
	rs.serve(func(w http.ResponseWriter, r *http.Request) {
		// Also for what recovers from a panic further out.
		defer func(w gin.ResponseWriter, r *http.Request) { c.Writer, c.Request = w, r }(c.Writer, c.Request)
		c.Writer, c.Request = w.(gin.ResponseWriter), r //nolint:forcetypeassert // its own, or a *response
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
		rs := requestState{m: m, w: w, r: r, route: httpRoute(r), outerStatus: http.StatusOK}
		rs.serve(next.ServeHTTP)
	})
}

// serve serves the request. next runs the handlers.
func (rs *requestState) serve(next func(http.ResponseWriter, *http.Request)) {
	m := rs.m
	rs.arrivedAt, rs.leases = arrivalTime(rs.r), rs.leaseArray[:0]
	rs.innerCtx, rs.outerLease = rs.r.Context(), leaseFromRequest(rs.r)
	rs.idempotent = m.idempotency && (m.keyRequired || rs.r.Header[idempotencyHeader] != nil)

	switch {
	case isSafe(rs.r.Method), rs.lockIsLast():
		next(rs.w, rs.r)
		return
	case rs.isNested():
		rs.refuse(errNested)
		return
	case !rs.idempotent && !m.hasKey():
		next(rs.w, rs.r.WithContext(context.WithValue(rs.r.Context(), lockKey, rs))) // nor may another Lock be inside
		return
	case rs.route.template == "":
		rs.refuse(errNoRoute)
		return
	case !m.admission.gate.Enter():
		rs.refuse(errDraining)
		return
	}
	defer m.admission.gate.Leave()
	defer func() {
		m.admission.use(memoryUse, -rs.body.charged, 0)
		_ = rs.releaseLeases(rs.leases) // what has ended the goroutine may have left some
	}()

	err := rs.prepare()
	switch {
	case rs.replayed:
	case err != nil:
		rs.refuse(err)
	default:
		rs.handle(next)
	}
}

// safe reports whether requests with the method pass without a lease, whatever their headers say.
func isSafe(method string) bool {
	return slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE"}, method)
}

var errNoRoute = misplaced("Put the middleware around the handler of a route: with gin not in NoRoute, nor in Engine.Use if there are handlers of NoRoute; with net/http inside the router; with chi by r.With, of v5.3 or later. Other routers must set r.Pattern.",
	"the request has no route")

var errNested = misplaced(`Write the two as one Middleware, which takes both leases in one order: m.With(httplock.ByParam("id"), httplock.WithIdempotency(…)).`,
	"two Locks are around one request")

// nested reports whether a Lock further out has the request. Its mark is in the context, and its writer is on the way to
// the connection, whatever a middleware in between has done with one of them.
func (rs *requestState) isNested() bool {
	if rs.r.Context().Value(lockKey) != nil {
		return true
	}
	for w := rs.w; ; {
		if _, ok := w.(*response); ok {
			return true
		}
		outer, ok := w.(interface{ isNested() http.ResponseWriter })
		if !ok {
			return false
		}
		w = outer.isNested()
	}
}

// prepare does what comes before the handlers. The record comes first: a repetition gets it, whatever has become of the
// resource since. x.replayed says whether it did.
func (rs *requestState) prepare() error {
	if err := rs.readBody(); err != nil {
		return err
	}
	if rs.innerCtx.Err() != nil { // while the body came; no node was asked
		return &rejection{kind: EventGone, err: context.Cause(rs.innerCtx)}
	}
	if err := rs.resolveTenant(); err != nil {
		return err
	}

	if rs.idempotent {
		err := rs.identify()
		if err != nil {
			return err
		}
	}

	// The request waits twice, and may do so for as long as it may wait in all. What the functions of options take before each
	// wait counts for neither, but it brings the end of the server's WriteTimeout nearer.
	patience := rs.waitLimit()
	if rs.idempotent {
		began := time.Now()
		err := rs.acquireIdentity(began.Add(patience))
		if err != nil || rs.replayed {
			return err
		}
		patience -= time.Since(began)
	}

	key, err := rs.resourceKey()
	if key == "" || err != nil {
		return err
	}
	return rs.acquireResource(key, time.Now().Add(min(patience, rs.waitLimit())))
}

// handle runs the handlers under the leases.
func (rs *requestState) handle(next func(http.ResponseWriter, *http.Request)) {
	ctx, stop := rs.handlerContext()
	defer stop()
	r := rs.requestWith(ctx)
	if rs.idempotent {
		r.Header = r.Header.Clone()
		r.Header.Del("Accept-Encoding") // a repetition may come from a client that accepts another
	}
	w := newResponse(ctx, rs, rs.outerStatus)
	connection, breakable := connectionOf(rs.w)
	w.connection, w.canStream = connection, !rs.idempotent && r.ProtoAtLeast(1, 1) && breakable

	panicked := true
	defer w.discard() // a writer further out may panic when it is sent
	defer func() {
		rs.r.MultipartForm = r.MultipartForm // its files, too
		rs.finish(w, panicked)
	}()
	next(w, r)
	panicked = false
}

// context returns the context of the handlers. It ends with the leases and with that of the request; but a request that
// runs once is not over when its client has left, which will ask for the answer.
func (rs *requestState) handlerContext() (ctx context.Context, stop func()) {
	ends := []context.Context{rs.r.Context(), rs.leases[0].Context()}[:len(rs.leases)]
	if rs.idempotent {
		ends[0] = neverDone{ends[0]}
		if rs.outerLease != nil {
			ends = append(ends, rs.outerLease.Context())
		}
	}
	ctx, stop = join.Contexts(rs.innerCtx, ends...)
	run := Run{Identity: rs.identity.name, FencingToken: rs.leases[len(rs.leases)-1].FencingToken()}
	return NewContext(context.WithValue(ctx, lockKey, rs), run), stop
}

// leaseAround returns the lease that the request runs under already, as in a function of core.Locker.Do; nil if it has none.
func leaseFromRequest(r *http.Request) *core.Lease {
	lease, _ := core.FromContext(r.Context())
	return lease
}

// A lasting context has the values and the deadline of another, and never ends: what it is joined with ends at the deadline.
type neverDone struct{ context.Context }

func (neverDone) Done() <-chan struct{} { return nil }

func (neverDone) Err() error { return nil }
