package core

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockkit/lockkit/internal/callback"
)

// An Observer watches operations. Each of its functions may be nil; then it is not called and costs nothing. The zero
// Observer watches nothing. The functions must be safe for concurrent use.
//
// If a function panics, only its own call is affected: the panic is logged with its stack, and the lock goes on. If a
// function is slow or blocks, it delays the call of the Locker or Lease in which it is called: a wait for a key, a
// release, a completion. No lock of this package is held there.
//
// Renewals, replies of nodes and losses of leases are reported in the background, and nothing waits for these calls:
// they are made on one goroutine per lease, in order. While one of them does not return, up to 64 further events of
// that lease wait for it. Further events are dropped, except for the ends of operations whose beginning was reported,
// and the log says how many. The same holds for the logger (WithLogger), except that a panic of the logger is written
// to standard error.
type Observer struct {
	// Start is called when an operation begins. It may derive a context, in which the node calls of the operation
	// run. The node calls of a renewal do not wait for it, and run in the context of the acquisition. The function
	// that it returns is called exactly once, when the operation ends; it may be nil. Operations that have started
	// and not ended are the ones that wait (OpAcquire) or hold (OpHold) now.
	Start func(ctx context.Context, op Op) (context.Context, func(Outcome))

	// Event is called with decisions of packages built on this one, such as a tick that was skipped or a duplicate
	// that was not run.
	Event func(ctx context.Context, e Event)

	// Node is called with the reply of a node to a request: once per request and node, when the node answers or
	// fails, which may be long after the operation has ended, or when the node is not asked (VerdictCircuitOpen).
	// Outcome.Nodes has only the replies that were known when the outcome was decided, and a quorum decides without
	// its slowest nodes.
	//
	// The kind is that of the request: an OpAcquire may also send renewals and releases. OpTouch is a request that
	// belongs to no operation: with the restart guard, idle nodes are asked now and then whether they vote, and Ready
	// asks them.
	Node func(ctx context.Context, kind OpKind, reply NodeReply)

	// Hint returns a few bytes that a lease carries for its waiters, such as the trace context of its holder.
	// Outcome.HolderHint passes them to the observers of waiters in all processes, and Locker.Inspect returns them.
	// Hint is called with the context that Start returned for an OpAcquire. A hint that is empty or longer than 64
	// bytes is not carried.
	//
	// The hint may be missing, if the holder's Observer has no Hint or if a renewal had to bring the lease back. It
	// is never the hint of another holder.
	Hint func(ctx context.Context) string
}

// containPanics returns an Observer that calls o and contains its panics.
func (o Observer) containPanics(log *slog.Logger) Observer {
	safe := Observer{}
	if o.Start != nil {
		safe.Start = func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
			return o.start(ctx, op, log)
		}
	}

	if o.Event != nil {
		safe.Event = func(ctx context.Context, e Event) {
			callback.Call(log, "Observer.Event", func() { o.Event(ctx, e) })
		}
	}

	if o.Node != nil {
		safe.Node = func(ctx context.Context, kind OpKind, reply NodeReply) {
			callback.Call(log, "Observer.Node", func() { o.Node(ctx, kind, reply) })
		}
	}

	if o.Hint != nil {
		safe.Hint = func(ctx context.Context) (hint string) {
			callback.Call(log, "Observer.Hint", func() { hint = o.Hint(ctx) })
			return hint
		}
	}
	return safe
}

// start calls Start. If Start panics or derives no context, the operation goes on in its own context.
func (o Observer) start(ctx context.Context, op Op, log *slog.Logger) (derived context.Context, end func(Outcome)) {
	callback.Call(log, "Observer.Start", func() { derived, end = o.Start(ctx, op) })
	if derived == nil {
		derived = ctx
	}
	return derived, containEnd(end, log)
}

// containEnd returns a function that calls end and contains its panics; nil if end is nil.
func containEnd(end func(Outcome), log *slog.Logger) func(Outcome) {
	if end == nil {
		return nil
	}
	return func(out Outcome) {
		callback.Call(log, "the function that Observer.Start returned", func() { end(out) })
	}
}

// An Op is an operation that begins.
type Op struct {
	Kind  OpKind
	Name  string // Name: the low-cardinality class of the key
	Key   string
	Keys  int // the number of keys of AcquireAll; Key is the first of them, in sorted order; 1 for all other operations
	Nodes int
	Try   bool   // OpAcquire: does not wait
	Token uint64 // all but OpAcquire: fencing token of the lease; 0 for AcquireAll, which has one for each key
}

// An Event is a decision of a package built on this one, to be counted.
type Event struct {
	Source string // the package, such as "cronlock"
	Name   string // Name: the low-cardinality class of the key
	Kind   EventKind
}

// An EventKind is the kind of such a decision. There are few, so it can be an attribute of a metric. Each package
// lists its own as constants named Event….
type EventKind string

// An Outcome is the result of an operation.
type Outcome struct {
	Err        error         // the error of the call; OpHold: ErrReleased, or why the lease ended early
	Reason     LossReason    // with ErrLost
	Unnoticed  bool          // OpRelease: with ErrLost, the loss was unknown before; the OpHold has ended as released
	Token      uint64        // OpAcquire: fencing token granted; 0 for AcquireAll
	Attempts   int           // OpAcquire: rounds it took
	Contended  bool          // OpAcquire: the key was held
	HolderHint string        // OpAcquire: the Hint of the last holder that blocked the call
	Margin     time.Duration // OpAcquire: trusted time left; OpRenew: trusted time left before this round
	Nodes      []NodeReply   // the last round, node by node; nodes that had not answered are Pending
}
