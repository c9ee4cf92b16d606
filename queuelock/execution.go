package queuelock

import "context"

// An Execution is one run of a handler under its leases, for the effects that it has.
type Execution struct {
	// Identity names the task, the same in each of its deliveries: the key for whatever is idempotent by
	// key, such as the API of a payment provider.
	Identity string
	// FencingToken grows from run to run: of all that works under the same key (WithKey), or of this task where
	// there is no key. What the handler writes to must refuse a smaller one than it has seen.
	FencingToken uint64
}

// FromContext returns the Execution that ctx belongs to, in a handler behind Middleware. The lease itself
// is that of [core.FromContext]: of the key where there is one, else of the task.
func FromContext(ctx context.Context) (Execution, bool) {
	e, ok := ctx.Value(executionKey{}).(Execution)
	return e, ok
}

// NewContext returns a context that belongs to e, as Middleware gives to a handler: for a handler's own unit test, which
// calls it without a server and without a lease. [core.FromContext] finds none in it, unless ctx runs under one.
func NewContext(ctx context.Context, e Execution) context.Context {
	return context.WithValue(ctx, executionKey{}, e)
}

type executionKey struct{}
