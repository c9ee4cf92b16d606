package httplock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// Lock is the middleware for gin: a gin.HandlerFunc for a route or a group. The handlers after it run under the leases of the
// request, with c.Request.Context() as the package document says. If the request cannot have them, Lock answers in their
// place: see [EventBusy] and what follows it.
func (m *Middleware) Lock(c *gin.Context) {
	x := exchange{m: m, gin: c, w: c.Writer, r: c.Request, route: c.FullPath(), found: c.Writer.Status()}
	x.serve(c.Next, func(w *response, r *http.Request) {
		// Also for what recovers from a panic further out.
		defer func(w gin.ResponseWriter, r *http.Request) { c.Writer, c.Request = w, r }(c.Writer, c.Request)
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
		x := exchange{m: m, w: w, r: r, route: strings.TrimLeft(r.Pattern[strings.IndexAny(r.Pattern, " \t")+1:], " \t"), found: http.StatusOK}
		x.serve(func() { next.ServeHTTP(w, r) }, func(w *response, r *http.Request) { next.ServeHTTP(w, r) })
	})
}

// serve serves the request: run runs the handlers, and pass does so as if the middleware were not there.
func (x *exchange) serve(pass func(), run func(*response, *http.Request)) {
	m := x.m
	x.came, x.inner, x.leases = time.Now(), x.r.Context(), x.room[:0]
	x.once = m.idempotency && (m.required || x.r.Header[idempotencyKey] != nil)
	switch {
	case slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE"}, x.r.Method), // whatever its headers say
		x.route == "" && x.gin != nil, // gin also serves what has no route
		!x.once && !m.hasKey():
		pass()
		return
	case x.route == "":
		x.refuse(misconfigured("the request has no pattern: put the middleware around the handler of a route (chi: by r.With, of v5.3 or later); other routers must set r.Pattern"))
		return
	case !m.admission.inside.Enter():
		x.refuse(errDraining)
		return
	}
	defer m.admission.inside.Leave()
	defer func() {
		m.admission.use(memory, -len(x.body), 0)
		_ = x.release(x.leases) // after a panic of an observer
	}()
	for _, step := range []func() error{x.readBody, x.makeKeys, x.acquire} {
		if err := step(); err == errAnswered { //nolint:errorlint // never wrapped
			return
		} else if err != nil {
			x.refuse(err)
			return
		}
	}
	x.handle(run)
}

// readBody reads the body. net/http looks out for the client's leaving only once that is done.
func (x *exchange) readBody() (err error) {
	if !x.m.admission.use(memory, 0, x.m.memory) {
		return overloaded
	}
	if x.r.Body == nil || x.r.Body == http.NoBody {
		return nil
	}
	x.body, err = io.ReadAll(metered{http.MaxBytesReader(x.w, x.r.Body, int64(x.m.bodyLimit)), x.m})
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok { // ours, or somebody else's
		return &rejection{EventBodyTooLarge, fmt.Sprintf("It must have no more than %d bytes.", large.Limit), err}
	}
	if err != nil && !errors.Is(err, overloaded) {
		err = &rejection{kind: EventBodyBroken, err: err}
	}
	return err
}

// A metered body takes memory for what has come of it, and not for what its client has announced.
type metered struct {
	io.Reader
	m *Middleware
}

func (b metered) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if !b.m.admission.use(memory, n, b.m.memory) {
		return 0, overloaded
	}
	return n, err
}

// acquire takes the leases.
func (x *exchange) acquire() error {
	a, m := x.m.admission, x.m
	if x.inner.Err() != nil { // while the body came; no node was asked
		return &rejection{kind: EventGone, err: context.Cause(x.inner)}
	}
	if !a.use(waiters, 1, m.maxWaitersTotal) {
		return overloaded
	}
	defer a.use(waiters, -1, 0)
	until := time.Now().Add(x.patience())
	if x.once {
		err := x.take(x.onceKey, time.Time{}) // whoever repeats has given up waiting before
		if op, ok := errors.AsType[*core.OpError](err); ok && op.Record != nil {
			return x.replay(op.Record.Result)
		}
		if err != nil {
			return denied(err, EventIdempotencyInFlight)
		}
	}
	if x.key == "" {
		return nil
	}
	if !a.use(counted{key: x.key}, 1, m.maxWaiters) {
		return &rejection{kind: EventQueueFull}
	}
	defer a.use(counted{key: x.key}, -1, 0)
	return x.take(x.key, until)
}

// patience returns how long the request waits: a key that comes when there is no time to use it is worse than none.
func (x *exchange) patience() time.Duration {
	d := x.m.maxWait
	if deadline, ok := x.r.Context().Deadline(); ok {
		d = min(d, time.Until(deadline)*3/4)
	}
	if s, ok := x.r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		d = min(d, (s.WriteTimeout-time.Since(x.came))*3/4)
	}
	return d
}

// take takes the lease of key. It waits until then, or until the request ends, the server drains, or a lease is lost that
// the request has already; the error of such an end matches its cause.
func (x *exchange) take(key string, until time.Time) error {
	// Without a lease, the request's context is inner already.
	ctx, stop := join.Contexts(x.inner, []context.Context{x.m.admission.draining, x.r.Context()}[:1+len(x.leases)]...)
	defer stop()
	get := x.m.locker.Acquire
	if until.IsZero() || x.m.maxWait == 0 {
		get = x.m.locker.TryAcquire
	}
	lease, err := get(ctx, key, core.Name(x.route), core.MaxWait(max(time.Until(until), time.Millisecond)))
	if err == nil {
		x.leases, x.inner = append(x.leases, lease), lease.Context()
	}
	if err == nil && ctx.Err() != nil || core.ClassOf(err) == core.ClassCancelled {
		return errors.Join(ctx.Err(), context.Cause(ctx)) // a cause may hide a deadline
	}
	return err
}

// handle runs the handlers under the leases.
func (x *exchange) handle(run func(*response, *http.Request)) {
	ctx, stop := x.context()
	defer stop()
	r := x.with(ctx)
	w := newResponse(ctx, x, x.found)
	w.streams = !x.once && r.ProtoAtLeast(1, 1) && breakable(x.w)
	panicked := true
	defer func() {
		x.r.MultipartForm = r.MultipartForm // its files, too
		x.end(w, panicked)
	}()
	run(w, r)
	panicked = false
}

// context returns the context of the handlers. It ends with the leases and with that of the request; but a request that
// runs once is not over when its client has left, which will ask for the answer.
func (x *exchange) context() (ctx context.Context, stop func()) {
	ends := []context.Context{x.r.Context(), x.leases[0].Context()}[:len(x.leases)]
	if x.once {
		ends[0] = lasting{ends[0]}
		for _, lease := range x.held()[len(x.leases):] { // of what is further out
			ends = append(ends, lease.Context())
		}
	}
	ctx, stop = join.Contexts(x.inner, ends...)
	return NewContext(context.WithValue(ctx, contextKey("exchange"), x), Run{x.identity, x.leases[len(x.leases)-1].FencingToken()}), stop
}

// A lasting context has the values and the deadline of another, and never ends: what it is joined with ends at the deadline.
type lasting struct{ context.Context }

func (lasting) Done() <-chan struct{} { return nil }

func (lasting) Err() error { return nil }
