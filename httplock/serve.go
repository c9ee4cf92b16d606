package httplock

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// Lock is the middleware for gin: a gin.HandlerFunc for a route or a group. The handlers after it run under the leases
// of the request, with c.Request.Context() as the package document describes. If the request does not get its leases,
// Lock responds instead of the handlers: see [EventBusy] and the other events.
//
// In Engine.NoRoute, Lock responds with 500 to every request that it would lock, because the request has no route. In
// Engine.Use, it does the same to requests without a route, unless it is the last handler and NoRoute has none.
func (m *Middleware) Lock(c *gin.Context) {
	status := c.Writer.Status()
	if isInformational(status) { // another response follows
		status = http.StatusOK
	}

	// gin runs the handlers after Lock itself, without a lease, unless they have run or Lock aborts them. After a panic
	// that a middleware further out recovers, it runs those that have not run.
	haveRun := false
	defer func() {
		if !haveRun {
			c.Abort()
		}
	}()

	rs := requestState{m: m, gin: c, w: c.Writer, r: c.Request, route: ginRoute(c), outerStatus: status}
	rs.serve(func(w http.ResponseWriter, r *http.Request) {
		// Restored even after a panic, for the middleware further out that recovers it.
		outerWriter, outerRequest := c.Writer, c.Request
		defer func() {
			if rs.hasGin(w) {
				c.Writer = outerWriter
				c.Request = outerRequest
			}
		}()

		c.Writer = w.(gin.ResponseWriter) //nolint:forcetypeassert // its own, or a *response
		c.Request = r
		c.Next()
		haveRun = true
	})
}

// LockHandler is Lock for net/http. It goes inside the router, which must have set r.Pattern and the values of
// r.PathValue, as http.ServeMux and chi (v5.3 or later) do:
//
//	mux.Handle("PUT /orders/{id}", m.LockHandler(update))
//
// Around a router, where neither is known, it responds with 500 to every request that it would lock. It does the same if a
// key needs the parameters and two of them have the same name, as chi allows for mounted routers. The method of a pattern
// is not a part of the key. If routers are mounted in one another, the innermost pattern counts: routes that have the same
// innermost pattern share keys, unless they use [ByKey]. Around a router that is mounted, this is the pattern of the mount,
// so that all its routes are one.
//
// The parameters of a pattern are written {id}, {id...}, {id:regexp}, :id or *path. For a router that writes them in
// another way, set r.Pattern to one that is written so: parameters that are not recognized are in no key.
func (m *Middleware) LockHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rs := requestState{m: m, w: w, r: r, route: httpRoute(r), outerStatus: http.StatusOK}
		rs.serve(next.ServeHTTP)
	})
}

// serve serves the request. next runs the handlers.
func (rs *requestState) serve(next func(http.ResponseWriter, *http.Request)) {
	m := rs.m
	hasHeader := rs.r.Header[idempotencyHeader] != nil
	rs.idempotent = m.idempotency && (m.keyRequired || hasHeader)
	rs.leases = rs.leaseArray[:0]
	rs.innerCtx = rs.r.Context()
	rs.around = holdersAround(rs.r)

	if isSafe(rs.r.Method) || rs.lockIsLast() {
		next(rs.w, rs.r)
		return
	}

	rs.noteArrival()
	switch {
	case rs.isNested():
		rs.refuse(errNested)
		return
	case !rs.idempotent && !m.hasKey():
		// There is nothing to lock. The mark in the context still makes a Lock further in fail.
		next(rs.w, rs.r.WithContext(context.WithValue(rs.r.Context(), lockKey, notLocked{})))
		return
	case rs.route.template == "":
		rs.refuse(errNoRoute)
		return
	}

	entered := m.admission.gate.Enter()
	if !entered {
		rs.refuse(errDraining)
		return
	}
	defer m.admission.gate.Leave()

	// No leases are left here, except after a panic or a runtime.Goexit.
	defer func() {
		m.admission.release(memoryUse, rs.body.charged)
		_ = rs.releaseLeases(rs.leases)
	}()

	err := rs.prepare()
	switch {
	case rs.replayed:
	case rs.isOver():
		rs.reportOver()
		rs.abandon()
	case err != nil:
		rs.refuse(err)
	default:
		rs.handle(next)
	}
}

// noteArrival sets the arrival of the request, and its time.
func (rs *requestState) noteArrival() {
	rs.arrival = arrivalOf(rs.w, rs.r)
	rs.arrivedAt = time.Now()
	if rs.arrival != nil {
		rs.arrivedAt = rs.arrival.at
	}
}

// isSafe reports whether requests with the method pass without a lease, whether or not they have an Idempotency-Key.
func isSafe(method string) bool {
	return slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE"}, method)
}

var errNoRoute = misplaced(
	"Put the middleware around the handler of a route: "+
		"with gin not in NoRoute, nor in Engine.Use if there are handlers of NoRoute; "+
		"with net/http inside the router; with chi by r.With, of v5.3 or later. Other routers must set r.Pattern.",
	"the request has no route",
)

var errNested = misplaced(
	`Write the two as one Middleware, which takes both leases in one order: `+
		`m.With(httplock.ByParam("id"), httplock.WithIdempotency(…)).`,
	"two Locks are around one request",
)

// isNested reports whether a Lock further out has the request. It looks for the mark in the context and for the
// response among the writers, because a middleware in between may have replaced one of them.
func (rs *requestState) isNested() bool {
	if rs.r.Context().Value(lockKey) != nil {
		return true
	}

	for w := range outward(rs.w) {
		if _, ok := w.(*response); ok {
			return true
		}
	}
	return false
}

// prepare does everything that comes before the handlers. It sets rs.replayed if the request was answered from a
// record.
func (rs *requestState) prepare() error {
	if err := rs.readBody(); err != nil {
		return err
	}
	if rs.innerCtx.Err() != nil { // it ended while the body arrived; no node was asked
		return &rejection{kind: EventGone, err: context.Cause(rs.innerCtx)}
	}
	if err := rs.resolveTenant(); err != nil {
		return err
	}
	if rs.idempotent {
		if err := rs.identify(); err != nil {
			return err
		}
	}

	// The request waits twice, for the limit in all. The functions of options run before each wait. Their time does not
	// count, but it brings the end of the server's WriteTimeout nearer.
	limit := rs.waitLimit()

	// The record comes before the resource's key: a repetition gets it even if that key can no longer be made.
	if rs.idempotent {
		start := time.Now()
		err := rs.acquireIdentity(start.Add(limit))
		if err != nil || rs.replayed {
			return err
		}
		limit -= time.Since(start)
	}

	key, err := rs.resourceKey()
	if err != nil {
		return err
	}
	if key == "" {
		return nil
	}
	return rs.acquireResource(key, time.Now().Add(min(limit, rs.waitLimit())))
}

// handle runs the handlers under the leases, and sends the response.
func (rs *requestState) handle(next func(http.ResponseWriter, *http.Request)) {
	ctx, stop := rs.handlerContext()
	defer stop()

	r := rs.requestWith(ctx)
	if rs.idempotent {
		r.Header = r.Header.Clone()
		r.Header.Del("Accept-Encoding") // a repetition may come from a client that accepts another
	}

	w := newResponse(ctx, rs, rs.outerStatus)
	w.isHandlers = true
	conn, breakable := connectionOf(rs.w)
	w.connection = conn
	w.connection.resets = !r.ProtoAtLeast(1, 1)
	rs.hold.begin(rs.r.Context(), rs.arrival, conn.arrival != nil)
	w.canStream = breakable && !rs.idempotent && awaitsEnd(r) && rs.hold.canStream
	w.noteGin()

	panicked := true
	defer w.discard() // finish does not, if a writer further out panics
	defer func() {
		keepFiles(rs.r, r)
		rs.finish(w, panicked)
	}()
	next(w, r)
	panicked = false
}

// keepFiles gives the files of a form to the request outer, because net/http removes those of its own request. inner is
// a copy of outer. Without such files it writes nothing, because net/http may already be done with outer.
func keepFiles(outer, inner *http.Request) {
	if outer.MultipartForm != inner.MultipartForm {
		outer.MultipartForm = inner.MultipartForm
	}
}

// awaitsEnd reports whether the client that sent r waits for the end of a response of unknown length.
func awaitsEnd(r *http.Request) bool {
	return r.ProtoAtLeast(1, 1) && r.Method != http.MethodHead && r.Method != http.MethodConnect
}

// handlerContext returns the context of the handlers. It ends when a lease ends, or a lease or permit around, and when
// the request's context does. The context of an idempotent request does not end when the client leaves, because the
// client will ask for the response.
func (rs *requestState) handlerContext() (ctx context.Context, stop func()) {
	ends := make([]context.Context, 0, 5)
	stopLoss := func() {}
	if rs.idempotent {
		loss, stop := lossOf(rs.r.Context())
		stopLoss = stop
		ends = append(ends, neverDone{rs.r.Context()}, loss)
	} else {
		ends = append(ends, rs.r.Context())
	}

	if len(rs.leases) > 1 { // innerCtx is the context of the last lease
		ends = append(ends, rs.leases[0].Context())
	}
	for _, h := range rs.around { // the request's context need not end with them
		ends = append(ends, h.Context())
	}
	ctx, stopJoint := join.Contexts(rs.innerCtx, ends...)
	stop = func() {
		stopJoint()
		stopLoss()
	}

	if rs.idempotent {
		ctx = rs.m.locker.WithWork(ctx, rs.identity.key)
	}
	innermost := rs.leases[len(rs.leases)-1]
	run := Run{Identity: rs.identity.name, FencingToken: innermost.FencingToken()}
	return NewContext(context.WithValue(ctx, lockKey, rs), run), stop
}

// lossOf returns a context that ends when ctx ends with the loss of a lease.
func lossOf(ctx context.Context) (loss context.Context, stop func()) {
	loss, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stopWatch := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, core.ErrLost) {
			cancel(cause)
		}
	})
	return loss, func() {
		stopWatch()
		cancel(nil)
	}
}

// A neverDone context has the values and the deadline of another context, but is never done. A context that is joined
// from it ends at the deadline.
type neverDone struct{ context.Context }

func (neverDone) Done() <-chan struct{} { return nil }

func (neverDone) Err() error { return nil }
