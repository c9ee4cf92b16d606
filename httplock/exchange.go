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
	came  time.Time

	body []byte

	key         string // of the resource; empty: nothing makes one
	once        bool   // it runs once, under an Idempotency-Key
	onceKey     string
	identity    string
	fingerprint [sha256.Size]byte

	leases []*core.Lease   // not settled yet: that of the Idempotency-Key, that of the resource
	room   [2]*core.Lease  // for them
	inner  context.Context // of the last of them, or of the request
}

// request returns the request for a function of the user's, with its body at the beginning.
func (x *exchange) request() *http.Request {
	x.rewind()
	if x.gin == nil {
		return x.r
	}
	return x.r.WithContext(context.WithValue(x.r.Context(), ginKey{}, x.gin))
}

type ginKey struct{}

// GinContext returns gin's context, for a function that [ByFunc], [ByKey], [WithTenant] or [WithReply] was given. It
// returns false if the request did not come by gin.
func GinContext(r *http.Request) (*gin.Context, bool) {
	c, ok := r.Context().Value(ginKey{}).(*gin.Context)
	return c, ok
}

// rewind makes what reads the body next begin at its beginning.
func (x *exchange) rewind() {
	if x.body != nil {
		x.r.Body = io.NopCloser(bytes.NewReader(x.body))
	}
}

// lost returns why a lease of the request ended before the handlers have returned.
func (x *exchange) lost() (err error) {
	for _, lease := range x.leases {
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
