package httplock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Kinds of events that [core.Observer.Event] receives, with source "httplock" and the template of the route as name.
// All but the last two are refusals: responses in place of the handler's, with the status given here unless [WithReply]
// writes another. If a stream has begun, its connection is broken instead.
//
// After EventLost, the effect of the handler is unknown, unless the detail says that nothing was done. After
// EventMisconfigured, the log says what is wrong with the route, or has the stack of a function that panicked.
const (
	EventBusy           core.EventKind = "busy"             // 409: the key was held all the time, or is in a cooldown
	EventDone           core.EventKind = "done"             // 409: the key was completed for good (core.Lease.Complete)
	EventQueueFull      core.EventKind = "queue_full"       // 429: too many requests wait for this key already
	EventOverloaded     core.EventKind = "overloaded"       // 503: too many requests wait in all, or no memory is left
	EventDraining       core.EventKind = "draining"         // 503: the server is shutting down
	EventUnavailable    core.EventKind = "unavailable"      // 503: no quorum of lock nodes
	EventGone           core.EventKind = "client_gone"      // 503: the request's context ended before its handler ran
	EventLost           core.EventKind = "lost"             // 503: a lease was lost
	EventKeyMissing     core.EventKind = "key_missing"      // 400: the request lacks a part of its key
	EventMisconfigured  core.EventKind = "misconfigured"    // 500: see the log
	EventBodyBroken     core.EventKind = "body_broken"      // 400: the body could not be read to its end
	EventBodyTooLarge   core.EventKind = "body_too_large"   // 413: see WithBodyLimit
	EventAnswerTooLarge core.EventKind = "answer_too_large" // 500: the response is too large to hold back; see the log

	EventIdempotencyKey      core.EventKind = "idempotency_key"       // 400: required and missing, or malformed
	EventIdempotencyInFlight core.EventKind = "idempotency_in_flight" // 409: the first request is not over
	EventIdempotencyMismatch core.EventKind = "idempotency_mismatch"  // 422: the key is of another request or sender
	EventIdempotencyOmitted  core.EventKind = "idempotency_omitted"   // 410: only the status was recorded

	EventReplayed   core.EventKind = "replayed"    // a request was answered from the record of its Idempotency-Key
	EventRecordOpen core.EventKind = "record_open" // too few nodes confirmed a record: the middleware tries again
)

// A Refusal is a response of the middleware in place of the handler's.
type Refusal struct {
	Kind       core.EventKind
	Status     int
	RetryAfter time.Duration // when another try may succeed; 0 if unknown or pointless
	Title      string        // what happened, for people; the same for all refusals of a kind
	Detail     string        // what to do about it
	Err        error         // the cause, for logs; nil if Kind says it all. It may name the key: do not send it
}

// Write sends r as application/problem+json (RFC 9457), without the key and its holder.
func (r Refusal) Write(w http.ResponseWriter) {
	kind := "urn:lockkit:httplock:" + string(r.Kind)
	text, _ := json.Marshal(map[string]any{"type": kind, "title": r.Title, "status": r.Status, "detail": r.Detail})
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.Status)
	_, _ = w.Write(text) // the client may be gone
}

// defaultRetryAfter is the Retry-After of refusals for which no better value is known.
const defaultRetryAfter = time.Second

// refusals is the refusal of each kind, without Kind and Err.
var refusals = map[core.EventKind]Refusal{
	EventBusy: {
		Status:     http.StatusConflict,
		RetryAfter: defaultRetryAfter,
		Title:      "Resource is busy",
		Detail:     "Another request is working on it. Try again.",
	},
	EventDone: {
		Status: http.StatusConflict,
		Title:  "Resource is closed",
		Detail: "It takes no more requests of this kind.",
	},
	EventQueueFull: {
		Status:     http.StatusTooManyRequests,
		RetryAfter: defaultRetryAfter,
		Title:      "Too many requests wait for this resource",
		Detail:     "Send fewer at once.",
	},
	EventOverloaded: {
		Status:     http.StatusServiceUnavailable,
		RetryAfter: defaultRetryAfter,
		Title:      "Too many requests",
		Detail:     "Nothing was done. Try again later.",
	},
	EventDraining: {
		Status:     http.StatusServiceUnavailable,
		RetryAfter: defaultRetryAfter,
		Title:      "Server is shutting down",
		Detail:     "Nothing was done. Try again.",
	},
	EventUnavailable: {
		Status:     http.StatusServiceUnavailable,
		RetryAfter: defaultRetryAfter,
		Title:      "Locks are unavailable",
		Detail:     "Nothing was done. Try again later.",
	},
	EventGone: {
		Status:     http.StatusServiceUnavailable,
		RetryAfter: defaultRetryAfter,
		Title:      "Request was cancelled",
		Detail:     "Nothing was done. Try again.",
	},
	EventLost: {
		Status: http.StatusServiceUnavailable,
		Title:  "Lock was lost",
		Detail: "Find out what it did before you repeat it: " +
			"a repetition runs again, also with the same Idempotency-Key.",
	},
	EventKeyMissing: {
		Status: http.StatusBadRequest,
		Title:  "Request does not name its resource",
		Detail: "Nothing was done. Correct the request.",
	},
	EventMisconfigured: {
		Status: http.StatusInternalServerError,
		Title:  "Server is misconfigured",
		Detail: "Tell those who run it.",
	},
	EventBodyBroken: {
		Status:     http.StatusBadRequest,
		RetryAfter: defaultRetryAfter,
		Title:      "Body could not be read",
		Detail:     "Nothing was done. Send all of it.",
	},
	EventBodyTooLarge: {
		Status: http.StatusRequestEntityTooLarge,
		Title:  "Body is too large",
	},
	EventAnswerTooLarge: {
		Status: http.StatusInternalServerError,
		Title:  "Answer is too large",
		Detail: "The request was carried out.",
	},
	EventIdempotencyKey: {
		Status: http.StatusBadRequest,
		Title:  "Idempotency-Key is missing or malformed",
		Detail: "Send one, unique to the operation, such as a UUID: " +
			"1 to 255 visible ASCII characters without \", comma and \\, or a quoted string.",
	},
	EventIdempotencyInFlight: {
		Status:     http.StatusConflict,
		RetryAfter: defaultRetryAfter,
		Title:      "Idempotency-Key is in use",
		Detail:     "The first request with it is under way. Try again to get its answer.",
	},
	EventIdempotencyMismatch: {
		Status: http.StatusUnprocessableEntity,
		Title:  "Idempotency-Key was used with another request or other credentials",
		Detail: "Repeat a request as it was, with the same credentials. " +
			"Use a new key only for a new request, whose effect is wanted as well.",
	},
	EventIdempotencyOmitted: {
		Status: http.StatusGone,
		Title:  "Answer cannot be repeated",
		Detail: "The request was carried out.",
	},
}

// A rejection is the error of a request that is refused. It makes a Refusal, together with the entry of its kind in
// refusals.
type rejection struct {
	kind       core.EventKind
	detail     string        // Refusal.Detail; empty: the detail of the kind
	retryAfter time.Duration // Refusal.RetryAfter; 0: the time of the kind
	err        error         // Refusal.Err
}

func (r *rejection) Error() string { return fmt.Sprintf("httplock: %s: %v", r.kind, r.err) }

func (r *rejection) Unwrap() error { return r.err }

// refusal returns the refusal of r. The time that core gives to try again takes precedence over other times.
func (r *rejection) refusal() Refusal {
	refusal := refusals[r.kind]
	refusal.Kind = r.kind
	refusal.Err = r.err
	refusal.Detail = cmp.Or(r.detail, refusal.Detail)
	refusal.RetryAfter = cmp.Or(r.retryAfter, refusal.RetryAfter)

	if op, ok := errors.AsType[*core.OpError](r.err); ok && op.RetryAfter > 0 {
		refusal.RetryAfter = op.RetryAfter
	}
	return refusal
}

var errOverloaded = &rejection{kind: EventOverloaded}

func misconfigured(format string, args ...any) *rejection {
	return &rejection{kind: EventMisconfigured, err: fmt.Errorf(format, args...)}
}

// misplaced returns the rejection of a request with a Lock in the wrong place. The advice names the right
// place.
func misplaced(advice, format string, args ...any) *rejection {
	err := fmt.Errorf("%w. %s", fmt.Errorf(format, args...), advice)
	return &rejection{kind: EventMisconfigured, detail: advice, err: err}
}

// rejectionFor returns the rejection of a request that got no lease. heldKind is its kind if another caller has the
// key.
func rejectionFor(err error, heldKind core.EventKind) *rejection {
	op, ok := errors.AsType[*core.OpError](err)
	switch {
	case ok && op.Held == core.HeldByCaller:
		return misconfigured(
			"the request runs under a lease on this key already, as in a function of core.Locker.Do: %w", err)
	case ok && op.Held == core.HeldCooldown:
		detail := fmt.Sprintf("Nobody works on it: the key rests for %ds. Try again after that.",
			seconds(op.RetryAfter))
		return &rejection{kind: heldKind, detail: detail, err: err}
	}

	switch core.ClassOf(err) {
	case core.ClassInvalid:
		return &rejection{kind: EventMisconfigured, err: err}
	case core.ClassClosed:
		return &rejection{kind: EventDraining, err: err}
	case core.ClassDone:
		return &rejection{kind: EventDone, err: err}
	case core.ClassHeld:
		return &rejection{kind: heldKind, err: err}
	case core.ClassLost: // a lease that the request already had: the handler has not run
		return &rejection{
			kind:       EventLost,
			detail:     "Nothing was done. Try again.",
			retryAfter: defaultRetryAfter,
			err:        err,
		}
	case core.ClassUnavailable:
		return &rejection{kind: EventUnavailable, err: err}
	default: // the wait has ended
	}

	if errors.Is(err, context.DeadlineExceeded) { // no quorum has answered in time
		return &rejection{kind: EventUnavailable, err: err}
	}
	return &rejection{kind: EventGone, err: err}
}
