package httplock

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/lockkit/lockkit/core"
)

// Kinds of the events that observers of the Locker hear ([core.Observer.Event]), with source "httplock" and the
// template of the route as name. These are also refusals: replies of the middleware in place of the handler's, with the
// status that stands here unless an option or a reply of one's own changes it.
const (
	EventBusy          core.EventKind = "busy"           // 409: somebody else had the key for all of the wait
	EventDone          core.EventKind = "done"           // 409: a handler has completed the key for good (core.Lease.Complete)
	EventQueueFull     core.EventKind = "queue_full"     // 429: as many requests as allowed wait for this key already
	EventOverloaded    core.EventKind = "overloaded"     // 503: as many requests as allowed wait in this process already, or have their body read
	EventDraining      core.EventKind = "draining"       // 503: the server is shutting down
	EventUnavailable   core.EventKind = "unavailable"    // 503: no quorum of lock nodes
	EventLost          core.EventKind = "lost"           // 503: the lease was lost while the handler ran; what it did is open
	EventKeyMissing    core.EventKind = "key_missing"    // 400: the request lacks what makes the key, or has it twice
	EventMisconfigured core.EventKind = "misconfigured"  // 500: the route has no such parameter, or the like; c.Errors or the log says which
	EventBodyBroken    core.EventKind = "body_broken"    // 400: the body could not be read to its end
	EventBodyTimeout   core.EventKind = "body_timeout"   // 408: the body did not come in time
	EventBodyTooLarge  core.EventKind = "body_too_large" // 413: a body above WithBodyLimit that the key, or Once, needs

	// 500: the handler's answer is larger than what can be kept back, on a connection that could not be broken: see WithBuffer.
	EventAnswerTooLarge core.EventKind = "answer_too_large"

	EventIdempotencyMissing   core.EventKind = "idempotency_key_missing"   // 400: the route requires one
	EventIdempotencyMalformed core.EventKind = "idempotency_key_malformed" // 400: not a key, too long, or several
	EventIdempotencyInFlight  core.EventKind = "idempotency_in_flight"     // 409: the first request with this key is not over
	EventIdempotencyMismatch  core.EventKind = "idempotency_mismatch"      // 422: the key belongs to a different request
	EventIdempotencyOmitted   core.EventKind = "idempotency_omitted"       // 410: the request was carried out; its answer is too large to be repeated, or broke off
)

// Events that are no refusals.
const (
	EventGone       core.EventKind = "client_gone" // the client went away while it waited; status 499 in logs
	EventAborted    core.EventKind = "aborted"     // the lease was lost after the answer had begun: connection broken
	EventNested     core.EventKind = "nested"      // the request holds the key already, by an outer Lock
	EventReplayed   core.EventKind = "replayed"    // an idempotent request was answered from its record
	EventRecorded   core.EventKind = "recorded"    // the outcome of an idempotent request was recorded
	EventRecordOpen core.EventKind = "record_open" // whether it was recorded is open: too few lock nodes answered
)

const source = "httplock"

// warn logs what became of the lease.
func (x *exchange) warn(what string, err error) {
	x.m.locker.Logger().WarnContext(x.r.Context(), "httplock: "+what, x.about(err)...)
}

// about are the attributes of a log line about the lease. Like core it has a hash in place of the key, which errors do not
// log either.
func (x *exchange) about(err error) []any {
	sum := sha256.Sum256([]byte(x.lease.Key()))
	return []any{"route", x.route, "key_hash", hex.EncodeToString(sum[:8]), "token", x.lease.FencingToken(), "err", err}
}
