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
	x := exchange{m: m, gin: c, w: c.Writer, r: c.Request, route: routeOfGin(c), found: c.Writer.Status()}
	x.serve(func(w http.ResponseWriter, r *http.Request) {
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
		x := exchange{m: m, w: w, r: r, route: routeOf(r), found: http.StatusOK}
		x.serve(next.ServeHTTP)
	})
}

// serve serves the request. next runs the handlers.
func (x *exchange) serve(next func(http.ResponseWriter, *http.Request)) {
	m := x.m
	x.arrived, x.leases = arrival(x.r), x.room[:0]
	x.inner, x.around = x.r.Context(), leaseAround(x.r)
	x.once = m.idempotency && (m.required || x.r.Header[idempotencyKey] != nil)

	switch {
	case safe(x.r.Method), x.endsAtLock():
		next(x.w, x.r)
		return
	case x.nested():
		x.refuse(errNested)
		return
	case !x.once && !m.hasKey():
		next(x.w, x.r.WithContext(context.WithValue(x.r.Context(), lockKey, x))) // nor may another Lock be inside
		return
	case x.route.template == "":
		x.refuse(errNoRoute)
		return
	case !m.admission.inside.Enter():
		x.refuse(errDraining)
		return
	}
	defer m.admission.inside.Leave()
	defer func() {
		m.admission.use(memory, -x.body.taken, 0)
		_ = x.release(x.leases) // what has ended the goroutine may have left some
	}()

	err := x.prepare()
	switch {
	case x.replayed:
	case err != nil:
		x.refuse(err)
	default:
		x.handle(next)
	}
}

// safe reports whether requests with the method pass without a lease, whatever their headers say.
func safe(method string) bool {
	return slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE"}, method)
}

var errNoRoute = misplaced("Put the middleware around the handler of a route: with gin not in NoRoute, nor in Engine.Use if there are handlers of NoRoute; with net/http inside the router; with chi by r.With, of v5.3 or later. Other routers must set r.Pattern.",
	"the request has no route")

var errNested = misplaced(`Write the two as one Middleware, which takes both leases in one order: m.With(httplock.ByParam("id"), httplock.WithIdempotency(…)).`,
	"two Locks are around one request")

// nested reports whether a Lock further out has the request. Its mark is in the context, and its writer is on the way to
// the connection, whatever a middleware in between has done with one of them.
func (x *exchange) nested() bool {
	if x.r.Context().Value(lockKey) != nil {
		return true
	}
	for w := x.w; ; {
		if _, ok := w.(*response); ok {
			return true
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = outer.Unwrap()
	}
}

// prepare does what comes before the handlers. The record comes first: a repetition gets it, whatever has become of the
// resource since. x.replayed says whether it did.
func (x *exchange) prepare() error {
	if err := x.readBody(); err != nil {
		return err
	}
	if x.inner.Err() != nil { // while the body came; no node was asked
		return &rejection{kind: EventGone, err: context.Cause(x.inner)}
	}
	if err := x.findTenant(); err != nil {
		return err
	}

	if x.once {
		err := x.identify()
		if err != nil {
			return err
		}
	}

	// The request waits twice, and may do so for as long as it may wait in all. What the functions of options take before each
	// wait counts for neither, but it brings the end of the server's WriteTimeout nearer.
	patience := x.patience()
	if x.once {
		began := time.Now()
		err := x.claimIdentity(began.Add(patience))
		if err != nil || x.replayed {
			return err
		}
		patience -= time.Since(began)
	}

	key, err := x.resourceKey()
	if key == "" || err != nil {
		return err
	}
	return x.claimResource(key, time.Now().Add(min(patience, x.patience())))
}

// handle runs the handlers under the leases.
func (x *exchange) handle(next func(http.ResponseWriter, *http.Request)) {
	ctx, stop := x.context()
	defer stop()
	r := x.with(ctx)
	if x.once {
		r.Header = r.Header.Clone()
		r.Header.Del("Accept-Encoding") // a repetition may come from a client that accepts another
	}
	w := newResponse(ctx, x, x.found)
	connection, breakable := connectionOf(x.w)
	w.connection, w.streams = connection, !x.once && r.ProtoAtLeast(1, 1) && breakable

	panicked := true
	defer w.forget() // a writer further out may panic when it is sent
	defer func() {
		x.r.MultipartForm = r.MultipartForm // its files, too
		x.end(w, panicked)
	}()
	next(w, r)
	panicked = false
}

// context returns the context of the handlers. It ends with the leases and with that of the request; but a request that
// runs once is not over when its client has left, which will ask for the answer.
func (x *exchange) context() (ctx context.Context, stop func()) {
	ends := []context.Context{x.r.Context(), x.leases[0].Context()}[:len(x.leases)]
	if x.once {
		ends[0] = lasting{ends[0]}
		if x.around != nil {
			ends = append(ends, x.around.Context())
		}
	}
	ctx, stop = join.Contexts(x.inner, ends...)
	run := Run{Identity: x.identity.name, FencingToken: x.leases[len(x.leases)-1].FencingToken()}
	return NewContext(context.WithValue(ctx, lockKey, x), run), stop
}

// leaseAround returns the lease that the request runs under already, as in a function of core.Locker.Do; nil if it has none.
func leaseAround(r *http.Request) *core.Lease {
	lease, _ := core.FromContext(r.Context())
	return lease
}

// A lasting context has the values and the deadline of another, and never ends: what it is joined with ends at the deadline.
type lasting struct{ context.Context }

func (lasting) Done() <-chan struct{} { return nil }

func (lasting) Err() error { return nil }
