package core

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockkit/lockkit/internal/callback"
)

// An Observer watches operations. It has a function for each thing that it wants to know; those that are nil are not
// called, and cost nothing. The zero Observer watches nothing. The functions must be safe for concurrent use.
//
// A function that panics costs its own call: the panic is logged with its stack, and the lock goes on. A function that is
// slow, or blocks, delays the call of the Locker or Lease that it is called in: a wait for a key, a release, a completion. It
// is called there without any lock of this package.
//
// What a renewal, a reply of a node or the loss of a lease has to tell is told in the background, where nothing waits for it:
// the functions are called on one goroutine per lease, in order. While one of them does not return, up to 64 further events of
// that lease wait for it. Those beyond that are dropped, except for the ends of what was told before, and the log says how
// many. The same goes for the logger (WithLogger), except that a panic of the logger is written to standard error.
type Observer struct {
	// Start is called when an operation begins. It may derive a context, in which the node calls of the operation
	// run; those of a renewal do not wait for it, and run in the context of the acquisition. The function that it returns
	// is called exactly once, when the operation ends; it may be nil where the end is of no interest. Operations that have
	// started and not ended are what is waiting (OpAcquire) and held (OpHold) now.
	Start func(ctx context.Context, op Op) (context.Context, func(Outcome))

	// Event is called with what operations do not show: what the packages built on this one decided, such as a tick
	// that was skipped or a duplicate that was not run.
	Event func(ctx context.Context, e Event)

	// Node is called with what a node made of a request: once per request and node, when the node answers or fails,
	// which may be long after the operation has ended, or when it is left alone (VerdictCircuitOpen). Outcome.Nodes shows
	// only what was known when the outcome was decided, and a quorum decides without its slowest nodes.
	//
	// The kind is that of the request: an OpAcquire may also send renewals and releases. OpTouch is a request that
	// belongs to no operation: with the restart guard, nodes that are idle are asked now and then whether they vote, and
	// Ready asks them.
	Node func(ctx context.Context, kind OpKind, reply NodeReply)

	// Hint returns a few bytes that a lease carries for those who wait for it, such as the trace context of its
	// holder: Outcome.HolderHint shows them to the observers of waiters in all processes, and Locker.Inspect to who looks. It is called with the
	// context that Start returned for an OpAcquire. What is empty or longer than 64 bytes is not carried.
	//
	// It may be missing: where the holder's Observer has no Hint, or a renewal had to bring the lease back. But it is
	// never that of another than the holder.
	Hint func(ctx context.Context) string
}

// contained returns an Observer that does the same and does not panic.
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

// start calls Start. If that panics, or derives no context, the operation goes on in its own.
func (o Observer) start(ctx context.Context, op Op, log *slog.Logger) (derived context.Context, end func(Outcome)) {
	callback.Call(log, "Observer.Start", func() { derived, end = o.Start(ctx, op) })
	if derived == nil {
		derived = ctx
	}
	return derived, containEnd(end, log)
}

// containedEnd returns a function that does the same and does not panic.
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
	Nodes int
	Try   bool   // OpAcquire: does not wait
	Token uint64 // all but OpAcquire: fencing token of the lease
}

// An Event is a decision that a package built on this one has to tell, to be counted.
type Event struct {
	Source string // the package, such as "cronlock"
	Name   string // Name: the low-cardinality class of the key
	Kind   EventKind
}

// An EventKind is what a package decided: one of few words, fit for an attribute of a metric. Each package lists its own
// as constants named Event….
type EventKind string

// An Outcome is how an operation ended.
type Outcome struct {
	Err        error         // what the caller got; OpHold: ErrReleased after Release or Complete, else why the lease ended
	Reason     LossReason    // with ErrLost
	Unnoticed  bool          // OpRelease: with ErrLost, nobody had noticed before; the OpHold has ended as released
	Token      uint64        // OpAcquire: fencing token granted
	Attempts   int           // OpAcquire: rounds it took
	Contended  bool          // OpAcquire: somebody else held the key
	HolderHint string        // OpAcquire: what the holder's Hint returned, of the last one that was in the way
	Margin     time.Duration // OpAcquire: trusted time left; OpRenew: what was left before this round
	Nodes      []NodeReply   // the last round, node by node; stragglers are Pending
}
