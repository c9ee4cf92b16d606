package queuelock

import "context"

// A Run describes one run of a handler. The context of the handler carries it.
type Run struct {
	// Identity names the task. It is the same in each of its deliveries. Use it as the key of an operation that is
	// idempotent by key, such as a call to a payment provider. If the task has a foreign id, tasks of the same queue,
	// type and payload that reuse the id have the same Identity.
	Identity string
	// FencingToken is greater in each later run under the same key (WithKey), or of this task if there is no key. Make
	// the stores that the handler writes to reject a token smaller than the largest they have seen.
	// With WithConcurrency, it is greater only in each later run in the same Slot: keep the largest token of each.
	FencingToken uint64
	// Slot is the number of the permit under which the handler runs, from 0 to k-1 ([WithConcurrency]); 0 without that
	// option. No two handlers of a key that run at the same time have the same Slot.
	Slot int
}

type runKey struct{}

// NewContext returns a context that carries r, for the unit test of a handler that calls [FromContext]. It has no
// lease.
func NewContext(ctx context.Context, r Run) context.Context {
	return context.WithValue(ctx, runKey{}, r)
}

// FromContext returns the run that ctx belongs to, in a handler behind a Middleware. core.FromContext returns its
// lease: the lease of the key if there is one, else the lease of the identity. With WithConcurrency, the key has no lease of
// one holder, and core.FromContext returns none.
func FromContext(ctx context.Context) (Run, bool) {
	r, ok := ctx.Value(runKey{}).(Run)
	return r, ok
}
