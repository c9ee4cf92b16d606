package httplock

import "context"

// A Run describes one run of a handler. The context of the handler carries it.
type Run struct {
	// Identity is the same in each run of the request and of its repetitions, and different for all other requests. It
	// has 64 characters, for a column that is UNIQUE. It is empty without an Idempotency-Key.
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
