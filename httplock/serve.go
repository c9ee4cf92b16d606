package httplock

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// An exchange is one request on its way through a Middleware.
type exchange struct {
	m     *Middleware
	gin   *gin.Context // nil: it came by net/http
	w     http.ResponseWriter
	r     *http.Request
	route string // its template
	came  time.Time

	body   []byte
	memory int // that it has taken

	key         string // of the resource; empty: nothing makes one
	once        bool   // it runs once, under an Idempotency-Key
	onceKey     string
	identity    string
	fingerprint [sha256.Size]byte

	leases []*core.Lease // not settled yet: that of the Idempotency-Key, that of the resource
}

// serve serves the request: run runs the handlers, and pass does so as if the middleware were not there.
func (x *exchange) serve(pass func(), run func(*response, *http.Request)) {
	m := x.m
	x.came = time.Now()
	x.once = m.idempotency && (m.required || x.r.Header[idempotencyKey] != nil)
	switch x.r.Method { // no header can make a request safe
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		pass()
		return
	}
	switch {
	case x.route == "" && x.gin != nil, !x.once && !m.hasKey(): // gin also serves what has no route
		pass()
		return
	case x.route == "":
		x.refuse(misconfigured("the request has no pattern: put the middleware inside the router, around the handler " +
			"of a route (chi: by r.With, of v5.3 or later); other routers must set r.Pattern"))
		return
	}
	defer func() { x.use(-x.memory) }()
	err := x.readBody()
	if err == nil {
		err = x.makeKeys()
	}
	if err == nil && !m.admission.inside.Enter() {
		err = errDraining
	}
	if err != nil {
		x.refuse(err)
		return
	}
	defer m.admission.inside.Leave()
	defer func() { _ = x.release(x.leases) }() // what is not settled
	granted, err := x.acquire()
	switch {
	case err != nil:
		x.refuse(err)
	case granted:
		x.handle(run)
	}
}

// readBody reads the body. net/http looks out for the client's leaving only once that is done.
func (x *exchange) readBody() (err error) {
	if !x.use(0) {
		return overloaded
	}
	if x.r.Body == nil || x.r.Body == http.NoBody {
		return nil
	}
	x.body, err = io.ReadAll(metered{http.MaxBytesReader(x.w, x.r.Body, int64(x.m.bodyLimit)), x})
	tooLarge, is := errors.AsType[*http.MaxBytesError](err) // ours, or somebody else's
	switch {
	case err == nil || errors.Is(err, overloaded):
		return err
	case is:
		return &rejection{EventBodyTooLarge, fmt.Sprintf("It must have no more than %d bytes.", tooLarge.Limit), err}
	}
	return &rejection{kind: EventBodyBroken, err: err}
}

// rewind makes what reads the body next begin at its beginning.
func (x *exchange) rewind() {
	if x.body != nil {
		x.r.Body = io.NopCloser(bytes.NewReader(x.body))
	}
}

// acquire takes the leases. It returns false without an error if the request was answered from a record.
func (x *exchange) acquire() (granted bool, err error) {
	a, m := x.m.admission, x.m
	if !a.join(anyKey, m.maxWaitersTotal) {
		return false, overloaded
	}
	defer a.leave(anyKey)
	until := time.Now().Add(x.patience())
	if x.once {
		err := x.take(x.onceKey, time.Time{}) // whoever repeats has given up waiting before
		if op, ok := errors.AsType[*core.OpError](err); ok && op.Record != nil {
			return false, x.replay(op.Record.Result)
		}
		if err != nil {
			return false, denied(err, EventIdempotencyInFlight)
		}
	}
	if x.key != "" {
		if !a.join(x.key, m.maxWaiters) {
			return false, &rejection{kind: EventQueueFull}
		}
		defer a.leave(x.key)
		err = x.take(x.key, until)
	}
	return err == nil, err
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
// the request has already; the error of such an end is its cause.
func (x *exchange) take(key string, until time.Time) error {
	outer := x.r.Context()
	if len(x.leases) > 0 {
		outer = x.leases[0].Context()
	}
	ctx, stop := join.Contexts(outer, x.r.Context(), x.m.admission.draining)
	defer stop()
	get := x.m.locker.Acquire
	if until.IsZero() || x.m.maxWait == 0 {
		get = x.m.locker.TryAcquire
	}
	lease, err := get(ctx, key, core.Name(x.route), core.MaxWait(max(time.Until(until), time.Millisecond)))
	if err == nil {
		x.leases = append(x.leases, lease)
	}
	if err == nil && ctx.Err() != nil || core.ClassOf(err) == core.ClassCancelled {
		return context.Cause(ctx)
	}
	return err
}

// handle runs the handlers under the leases.
func (x *exchange) handle(run func(*response, *http.Request)) {
	ctx, stop := x.context()
	defer stop()
	x.rewind()
	r := x.r.WithContext(ctx)
	w := newResponse(x, r, http.StatusOK)
	w.run, w.streams = x, !x.once && r.ProtoAtLeast(1, 1) && breakable(x.w)
	panicked := true
	defer func() {
		if x.r.MultipartForm == nil { // its files are removed at the end of the request, by net/http
			x.r.MultipartForm = r.MultipartForm
		}
		x.end(w, panicked)
	}()
	run(w, r)
	panicked = false
}

// context returns the context of the handlers. It ends with the leases and with that of the request; but a request that
// runs once is not over when its client has left, which will ask for the answer.
func (x *exchange) context() (ctx context.Context, stop func()) {
	request, free := x.r.Context(), func() {}
	inner, ends := x.leases[len(x.leases)-1], []context.Context{x.leases[0].Context(), request}
	if x.once {
		ends[1] = context.WithoutCancel(request)
		if deadline, ok := request.Deadline(); ok {
			ends[1], free = context.WithDeadline(ends[1], deadline)
		}
		if outer, ok := core.FromContext(request); ok { // of a Lock further out
			ends = append(ends, outer.Context())
		}
	}
	ctx, leave := join.Contexts(inner.Context(), ends...)
	return NewContext(ctx, Run{x.identity, inner.FencingToken()}), func() { leave(); free() }
}

// lost returns why a lease of the request ended before the handlers have returned.
func (x *exchange) lost() error {
	if x == nil {
		return nil
	}
	for _, lease := range x.leases {
		if err := lease.Lost(); err != nil {
			return err
		}
	}
	return nil
}

// end settles the leases and sends the answer, once the handlers have returned or panicked. After a panic that is before
// anything recovers it, which would end a stream as if it were whole.
func (x *exchange) end(w *response, panicked bool) {
	outer, ok := x.w.(gin.ResponseWriter) // net/http does not tell
	past := ok && outer.Written() && w.state != streaming
	loss := x.settle(w, !panicked && !past)
	h, why := returned, &rejection{kind: EventAnswerTooLarge, err: errTooLarge}
	switch {
	case past:
		h, why = bypassed, misconfigured("an answer was written past the middleware, as by Engine.HandleContext")
	case loss != nil:
		h, why = lost, &rejection{kind: EventLost, err: loss}
	case panicked, w.state == streaming && w.short():
		h = cutShort
	}
	switch w.on(h); w.state {
	case refused:
		x.refuse(why)
	case broken:
		if h != cutShort {
			x.report(why)
		}
		if !panicked {
			panic(http.ErrAbortHandler)
		}
	}
}

// settle ends the leases, and records an answer that is whole. The error is that of the loss of a lease before.
func (x *exchange) settle(w *response, whole bool) error {
	leases, loss := x.leases, x.lost()
	x.leases = nil
	if x.once && whole && loss == nil && !asksAgain(w.status, w.answered()) {
		if loss = x.release(leases[1:]); loss == nil {
			return x.record(leases[0], x.encode(w))
		}
		leases = leases[:1]
	}
	return cmp.Or(loss, x.release(leases))
}

// settling is how long an answer waits for the nodes to confirm that its key is free. A client that goes on with another
// request then finds it free, wherever that request goes; a node that is slow delays nobody.
const settling = 100 * time.Millisecond

// release gives leases back, and waits for a while for that to be confirmed, except of those that are lost. The error is
// that of a loss before.
func (x *exchange) release(leases []*core.Lease) (loss error) {
	released, enough := make(chan error, len(leases)), time.After(settling)
	for _, lease := range leases {
		lost := lease.Lost()
		if lost != nil {
			released <- lost
		}
		x.m.admission.inside.Go(func() {
			if err := lease.Release(lease.Context()); lost == nil {
				released <- err
			}
		})
	}
	for range leases {
		select {
		case err := <-released:
			if errors.Is(err, core.ErrLost) {
				loss = err
			}
		case <-enough:
			return loss
		}
	}
	return loss
}
