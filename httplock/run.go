package httplock

import (
	"context"
	"errors"
	"net/http"

	"github.com/lockkit/lockkit/core"
)

// A Run describes one run of a handler. The context of the handler carries it.
type Run struct {
	// Identity is the same in each run of the request and of its repetitions. The package document has a table of its
	// parts. Requests with the same Idempotency-Key that differ only in other parts, such as the body, have the same
	// Identity. It has 64 characters, for a column that is UNIQUE. It is empty without an Idempotency-Key.
	Identity string
	// FencingToken is the token of the resource's lease, or of the Idempotency-Key's lease if no option makes a
	// resource key.
	FencingToken uint64
}

type runKey struct{}

// FromContext returns the run of the handler that ctx belongs to. core.FromContext returns its lease.
func FromContext(ctx context.Context) (Run, bool) {
	r, ok := ctx.Value(runKey{}).(Run)
	return r, ok
}

// NewContext returns a context that carries r, for the unit test of a handler that calls [FromContext]. It has no
// lease.
func NewContext(ctx context.Context, r Run) context.Context {
	return context.WithValue(ctx, runKey{}, r)
}

// Lost reports whether err says that a lease was lost (it matches [core.ErrLost]), and the middleware responds. It then
// treats the request as one that has lost its lease: the client gets a refusal with status 503 (EventLost) in place of
// the handler's response, and nothing is recorded. It is for a handler whose store has refused its fencing token (package
// core/fence), although the middleware has not noticed a loss:
//
//	if httplock.Lost(r, err) {
//		return
//	}
//
// Lost must be called before the handler returns, and may be called from any goroutine. It finds the Lock by the context
// of r: use the request that the handler was given, or one with a context made from its context. If it finds none, or if
// the request passed Lock without a lease, as GET requests do, Lost returns false, and the handler must respond.
func Lost(r *http.Request, err error) bool {
	rs, isLocked := r.Context().Value(lockKey).(*requestState)
	if !isLocked || !errors.Is(err, core.ErrLost) {
		return false
	}

	isFirst := rs.reportedLoss.CompareAndSwap(nil, &err)
	return isFirst || rs.reportedLoss.Load() != &handlersOver
}

// handlersOver stands for the loss of a request whose handlers have returned.
var handlersOver error
