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
	"github.com/lockkit/lockkit/core/semaphore"
)

// A requestState is one request on its way through a Middleware. Only the goroutine that serves the request uses it,
// except for recordForced and reportedLoss.
type requestState struct {
	m   *Middleware
	gin *gin.Context // nil with net/http

	// The request as Lock found it.
	w           http.ResponseWriter
	r           *http.Request
	route       route
	outerStatus int       // set by a middleware further out
	arrival     *arrival  // nil without Arrived; it may be over
	arrivedAt   time.Time // when the request arrived at Arrived, or at Lock
	around      []holder  // the request runs under them already

	// The parts of its keys.
	body   body
	tenant string

	// Its Idempotency-Key.
	idempotent   bool // the request has an Idempotency-Key that counts, or must have one
	identity     runIdentity
	replayed     bool                  // the response came from the record
	recordForced atomic.Bool           // the handler has called Record; set from any goroutine
	reportedLoss atomic.Pointer[error] // of Lost, set from any goroutine; &handlersOver when it comes too late

	// Its response.
	hold hold

	// Its leases.
	leases     []*core.Lease   // not ended yet, in the order in which they were acquired: identity, resource
	leaseArray [2]*core.Lease  // the array behind leases
	innerCtx   context.Context // of the last lease acquired; of the request before that
}

// A contextKey is the key of a value in the context of a request.
type contextKey string

const (
	ginKey     contextKey = "gin"     // gin's context
	lockKey    contextKey = "lock"    // the requestState whose handlers run, or notLocked
	arrivalKey contextKey = "arrival" // the arrival
)

// notLocked marks a request that passes a Lock without a lease.
type notLocked struct{}

// GinContext returns gin's context, for a function that was passed to [ByFunc], [ByKey], [WithTenant] or [WithReply].
// It returns false if the request did not come through gin. Except that of WithReply, the function must neither respond
// nor abort. It returns an error instead.
func GinContext(r *http.Request) (*gin.Context, bool) {
	c, _ := r.Context().Value(ginKey).(*gin.Context)
	return c, c != nil
}

// requestWith returns the request with ctx and an unread body.
func (rs *requestState) requestWith(ctx context.Context) *http.Request {
	if rs.body.content != nil || rs.body.alreadyRead {
		rs.r.Body = io.NopCloser(bytes.NewReader(rs.body.content))
	}
	return rs.r.WithContext(ctx)
}

// A holder is a lease, or a permit of a semaphore.
type holder interface {
	Context() context.Context
	Lost() error
}

// holdersAround returns the innermost lease and the innermost permit that a request already runs under, as in a function
// of core.Locker.Do.
func holdersAround(r *http.Request) (around []holder) {
	if lease, ok := core.FromContext(r.Context()); ok {
		around = append(around, lease)
	}
	if permit, ok := semaphore.FromContext(r.Context()); ok {
		around = append(around, permit)
	}
	return around
}

// lostError returns why one of the leases, or a lease or permit around them, ended before the handlers returned. It
// returns nil if all are held.
func (rs *requestState) lostError() (err error) {
	for _, h := range rs.around {
		err = cmp.Or(err, h.Lost())
	}
	if cause := context.Cause(rs.r.Context()); errors.Is(cause, core.ErrLost) { // of a lease or permit further out
		err = cmp.Or(err, cause)
	}

	for _, lease := range rs.leases {
		err = cmp.Or(err, lease.Lost())
	}
	return err
}

// releaseWait is how long a response waits until the nodes confirm that its key is free. The client's next request then
// finds the key free, at whichever replica. A slow node delays no response for longer.
const releaseWait = 100 * time.Millisecond

// releaseLeases releases leases, and waits up to releaseWait for the confirmations. It does not wait for a lease that
// is already lost. The error is the loss of a lease before its release.
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

// report sends an event to the observer, and logs an event that only a change of the route or the service can fix. It
// may be called after the request.
func (rs *requestState) report(kind core.EventKind, err error) {
	rs.m.locker.Event(rs.r.Context(), core.Event{Source: "httplock", Name: rs.route.template, Kind: kind})
	if refusals[kind].Status == http.StatusInternalServerError {
		rs.m.locker.Logger().Error("httplock: "+string(kind), "route", rs.route.template, "err", redactKey(err))
	}
}

// redactKey returns err for the log, without the key of a lease: keys may be secrets of clients.
func redactKey(err error) any {
	op, ok := errors.AsType[*core.OpError](err)
	if !ok {
		return err
	}
	return strings.ReplaceAll(err.Error(), op.Error(), op.LogValue().String())
}
