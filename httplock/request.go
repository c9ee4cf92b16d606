package httplock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// An exchange is one request on its way through a Middleware.
type requestState struct {
	m   *Middleware
	gin *gin.Context // nil with net/http

	// The request as Lock found it.
	w           http.ResponseWriter
	r           *http.Request
	route       route
	outerStatus int         // set by a middleware further out
	arrivedAt   time.Time   // when the request arrived at Arrived, or at Lock
	outerLease  *core.Lease // the lease of the request's context; nil if it has none

	// The parts of its keys.
	body   body
	tenant string

	// Its Idempotency-Key.
	idempotent   bool // the request has an Idempotency-Key that counts, or must have one
	identity     runIdentity
	replayed     bool        // the response came from the record
	recordForced atomic.Bool // the handler has called Record; set from any goroutine

	// Its leases.
	leases     []*core.Lease   // not ended yet, in the order in which they were acquired: identity, resource
	leaseArray [2]*core.Lease  // the array behind leases
	innerCtx   context.Context // of the last lease acquired; of the request before that
}

// A contextKey leads to what the context of a request carries.
type contextKey string

const (
	ginKey     contextKey = "gin"     // gin's context
	lockKey    contextKey = "lock"    // the requestState whose handlers run
	arrivalKey contextKey = "arrival" // when the request arrived at the server
)

// GinContext returns gin's context, for a function that [ByFunc], [ByKey], [WithTenant] or [WithReply] was given. It
// returns false if the request did not come by gin.
func GinContext(r *http.Request) (*gin.Context, bool) {
	c, _ := r.Context().Value(ginKey).(*gin.Context)
	return c, c != nil
}

// with returns the request with a context, and with its body at the beginning.
func (rs *requestState) requestWith(ctx context.Context) *http.Request {
	if rs.body.content != nil || rs.body.alreadyRead {
		rs.r.Body = io.NopCloser(bytes.NewReader(rs.body.content))
	}
	return rs.r.WithContext(ctx)
}

// lost returns why one of the leases ended, or the one around all of them, before the handlers have returned.
func (rs *requestState) lostError() (err error) {
	if rs.outerLease != nil {
		err = rs.outerLease.Lost()
	}
	for _, lease := range rs.leases {
		err = cmp.Or(err, lease.Lost())
	}
	return err
}

// settling is how long an answer waits for the nodes to confirm that its key is free. A client that goes on with another
// request then finds it free, wherever that request goes; a node that is slow delays nobody.
const releaseWait = 100 * time.Millisecond

// release gives leases back, and waits for a while for that to be confirmed, except of those that are lost. The error is
// that of a loss before.
func (rs *requestState) releaseLeases(leases []*core.Lease) (loss error) {
	if len(leases) == 0 {
		return nil
	}

	// Each release goes on in the background if it takes longer than releaseWait. Close waits for it.
	released := make(chan error, len(leases))
	pending := len(leases)
	for _, lease := range leases {
		if lost := lease.Lost(); lost != nil {
			loss = lost
			pending--
		}
		rs.m.admission.gate.Go(func() { released <- lease.Release(lease.Context()) })
	}

	timeout := time.After(releaseWait)
	for ; pending > 0; pending-- {
		select {
		case err := <-released:
			if errors.Is(err, core.ErrLost) {
				loss = err
			}
		case <-timeout:
			return loss
		}
	}
	return loss
}

// report counts an event, also after the request, and logs one that nothing but a look at the route helps against.
func (rs *requestState) report(kind core.EventKind, err error) {
	rs.m.locker.Event(rs.r.Context(), core.Event{Source: "httplock", Name: rs.route.template, Kind: kind})
	if refusals[kind].Status == http.StatusInternalServerError {
		rs.m.locker.Logger().Error("httplock: "+string(kind), "route", rs.route.template, "err", redactKey(err))
	}
}

// loggable returns an error without the key of a lease: keys may be secrets of clients.
func redactKey(err error) any {
	op, ok := errors.AsType[*core.OpError](err)
	if !ok {
		return err
	}
	return strings.ReplaceAll(err.Error(), op.Error(), op.LogValue().String())
}
