package httplock

// A Kind says what became of a request. Each is also the kind of an event for observers.
type Kind string

// Refusals: replies of the middleware in place of the handler's. The status is the default one.
const (
	KindBusy          Kind = "busy"           // 409: somebody else had the key for all of the wait
	KindDone          Kind = "done"           // 409: a handler has completed the key for good (core.Lease.Complete)
	KindQueueFull     Kind = "queue_full"     // 429: as many requests as allowed wait for this key already
	KindOverloaded    Kind = "overloaded"     // 503: as many requests as allowed wait in this process already
	KindDraining      Kind = "draining"       // 503: the server is shutting down
	KindUnavailable   Kind = "unavailable"    // 503: no quorum of lock nodes
	KindLost          Kind = "lost"           // 503: the lease was lost while the handler ran; what it did is open
	KindKeyMissing    Kind = "key_missing"    // 400: the request lacks what makes the key, or has it twice
	KindMisconfigured Kind = "misconfigured"  // 500: the route has no such parameter; c.Errors says which
	KindBodyBroken    Kind = "body_broken"    // 400: the body could not be read to its end
	KindBodyTooLarge  Kind = "body_too_large" // 413: an idempotent request with a body above WithBodyLimit

	KindIdempotencyMissing   Kind = "idempotency_key_missing"   // 400: the route requires one
	KindIdempotencyMalformed Kind = "idempotency_key_malformed" // 400: not a key, too long, or several
	KindIdempotencyInFlight  Kind = "idempotency_in_flight"     // 409: the first request with this key is not over
	KindIdempotencyMismatch  Kind = "idempotency_mismatch"      // 422: the key belongs to a different request
)

// What else is counted.
const (
	KindGone       Kind = "client_gone" // the client went away while it waited; status 499 in logs
	KindAborted    Kind = "aborted"     // the lease was lost after the answer had begun: connection broken
	KindNested     Kind = "nested"      // the request holds the key already, by an outer Lock
	KindReplayed   Kind = "replayed"    // an idempotent request was answered from its record
	KindRecorded   Kind = "recorded"    // the outcome of an idempotent request was recorded
	KindRecordOpen Kind = "record_open" // whether it was recorded is open: too few lock nodes answered
)

const source = "httplock"
