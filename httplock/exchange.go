package httplock

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// An exchange is one request on its way through a Middleware.
type exchange struct {
	m     *Middleware
	gin   *gin.Context // nil: it came by net/http
	w     http.ResponseWriter
	r     *http.Request
	route string // its template
	found int    // the status that was set further out
	came  time.Time

	body []byte

	key               string // of the resource; empty: nothing makes one
	once              bool   // it runs once, under an Idempotency-Key
	onceKey, identity string
	fingerprint       [sha256.Size]byte

	leases []*core.Lease   // not settled yet: that of the Idempotency-Key, that of the resource
	room   [2]*core.Lease  // for them
	inner  context.Context // of the last of them, or of the request
}

// show calls a function of the user's with the request.
func (x *exchange) show(f func(*http.Request)) {
	r := x.with(context.WithValue(x.r.Context(), contextKey("gin"), x.gin))
	f(r)
	x.r.Form, x.r.PostForm, x.r.MultipartForm = r.Form, r.PostForm, r.MultipartForm // net/http removes its files at the end
}

// A contextKey leads to what the context of a request carries.
type contextKey string

// GinContext returns gin's context, for a function that [ByFunc], [ByKey], [WithTenant] or [WithReply] was given. It
// returns false if the request did not come by gin.
func GinContext(r *http.Request) (*gin.Context, bool) {
	c, _ := r.Context().Value(contextKey("gin")).(*gin.Context)
	return c, c != nil
}

// with returns the request with a context, and with its body at the beginning.
func (x *exchange) with(ctx context.Context) *http.Request {
	if x.body != nil {
		x.r.Body = io.NopCloser(bytes.NewReader(x.body))
	}
	return x.r.WithContext(ctx)
}

// held returns the leases that the request has: of x, of Locks further out, and of package core around each.
func (x *exchange) held() (all []*core.Lease) {
	for ; x != nil; x, _ = x.r.Context().Value(contextKey("exchange")).(*exchange) {
		all = append(all, x.leases...)
		if lease, ok := core.FromContext(x.r.Context()); ok {
			all = append(all, lease)
		}
	}
	return all
}

// loss returns why one of the leases ended before the handlers have returned.
func loss(leases []*core.Lease) (err error) {
	for _, lease := range leases {
		err = cmp.Or(err, lease.Lost())
	}
	return err
}

// settling is how long an answer waits for the nodes to confirm that its key is free. A client that goes on with another
// request then finds it free, wherever that request goes; a node that is slow delays nobody.
const settling = 100 * time.Millisecond

// release gives leases back, and waits for a while for that to be confirmed, except of those that are lost. The error is
// that of a loss before.
func (x *exchange) release(leases []*core.Lease) (loss error) {
	if len(leases) == 0 {
		return nil
	}
	released, waiting := make(chan error, len(leases)), len(leases)
	for _, lease := range leases {
		if lost := lease.Lost(); lost != nil {
			loss, waiting = lost, waiting-1
		}
		x.m.admission.inside.Go(func() { released <- lease.Release(lease.Context()) })
	}
	for enough := time.After(settling); waiting > 0; waiting-- {
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

// report counts an event, also after the request, and logs one that nothing but a look at the route helps against.
func (x *exchange) report(kind core.EventKind, err error) {
	x.m.locker.Event(x.r.Context(), core.Event{Source: "httplock", Name: x.route, Kind: kind})
	if refusals[kind].Status == http.StatusInternalServerError {
		x.m.locker.Logger().Error("httplock: "+string(kind), "route", x.route, "err", err)
	}
}
