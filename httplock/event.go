package httplock

import (
	"context"

	"github.com/lockkit/lockkit/core"
)

// Kinds of events that [core.Observer.Event] receives, with source "httplock" and the template of the route as name. All
// but the last two are refusals: answers in place of the handler's, with the status that stands here unless [WithReply]
// writes another. Of a stream that has begun, the connection is broken instead.
const (
	EventBusy           core.EventKind = "busy"             // 409: somebody else had the key for all of the wait
	EventDone           core.EventKind = "done"             // 409: the key was completed for good (core.Lease.Complete)
	EventQueueFull      core.EventKind = "queue_full"       // 429: as many requests as may wait for this key already
	EventOverloaded     core.EventKind = "overloaded"       // 503: as many requests as may wait for any, or no memory is left
	EventDraining       core.EventKind = "draining"         // 503: the server is shutting down
	EventUnavailable    core.EventKind = "unavailable"      // 503: no quorum of lock nodes
	EventGone           core.EventKind = "client_gone"      // 503: the context of the request ended before its handler ran
	EventLost           core.EventKind = "lost"             // 503: a lease was lost; what the handler did is open
	EventKeyMissing     core.EventKind = "key_missing"      // 400: the request lacks what makes the key
	EventMisconfigured  core.EventKind = "misconfigured"    // 500: the log says what is wrong with the route
	EventBodyBroken     core.EventKind = "body_broken"      // 400: the body could not be read to its end
	EventBodyTooLarge   core.EventKind = "body_too_large"   // 413: see WithBodyLimit
	EventAnswerTooLarge core.EventKind = "answer_too_large" // 500: the handler's answer cannot be kept back; see the log

	EventIdempotencyKey      core.EventKind = "idempotency_key"       // 400: missing where it is required, or malformed
	EventIdempotencyInFlight core.EventKind = "idempotency_in_flight" // 409: the first request with this key is not over
	EventIdempotencyMismatch core.EventKind = "idempotency_mismatch"  // 422: the key belongs to a different request
	EventIdempotencyOmitted  core.EventKind = "idempotency_omitted"   // 410: the answer to the first was not recorded whole

	EventReplayed   core.EventKind = "replayed"    // a request was answered from the record of its Idempotency-Key
	EventRecordOpen core.EventKind = "record_open" // too few nodes answered: whether an answer is recorded is open
)

// A Run describes the run of a handler that a context belongs to.
type Run struct {
	// Identity is the same in each repetition of the request. It has 64 characters, for a column that is UNIQUE. It is
	// empty without an Idempotency-Key.
	Identity string
	// FencingToken is that of the resource's lease, or of the Idempotency-Key's where nothing makes a key.
	FencingToken uint64
}

type runKey struct{}

// FromContext returns the run that ctx belongs to. core.FromContext returns its lease.
func FromContext(ctx context.Context) (Run, bool) {
	r, ok := ctx.Value(runKey{}).(Run)
	return r, ok
}

// NewContext returns a context that belongs to r, for the unit test of a handler that calls [FromContext]. It holds no
// lease.
func NewContext(ctx context.Context, r Run) context.Context {
	return context.WithValue(ctx, runKey{}, r)
}
