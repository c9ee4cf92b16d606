package httplock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Kinds of events that [core.Observer.Event] receives, with source "httplock" and the template of the route as name. All
// but the last two are refusals: responses in place of the handler's, with the status given here unless [WithReply]
// writes another. If a stream has begun, its connection is broken instead.
const (
	EventBusy           core.EventKind = "busy"             // 409: somebody else had the key for all of the wait, or it rests
	EventDone           core.EventKind = "done"             // 409: the key was completed for good (core.Lease.Complete)
	EventQueueFull      core.EventKind = "queue_full"       // 429: too many requests wait for this key already
	EventOverloaded     core.EventKind = "overloaded"       // 503: too many requests wait in all, or no memory is left
	EventDraining       core.EventKind = "draining"         // 503: the server is shutting down
	EventUnavailable    core.EventKind = "unavailable"      // 503: no quorum of lock nodes
	EventGone           core.EventKind = "client_gone"      // 503: the context of the request ended before its handler ran
	EventLost           core.EventKind = "lost"             // 503: a lease was lost; what the handler did is unknown, unless the detail says that nothing was done
	EventKeyMissing     core.EventKind = "key_missing"      // 400: the request lacks what makes the key
	EventMisconfigured  core.EventKind = "misconfigured"    // 500: the log says what is wrong with the route, or has the stack of a function that panicked
	EventBodyBroken     core.EventKind = "body_broken"      // 400: the body could not be read to its end
	EventBodyTooLarge   core.EventKind = "body_too_large"   // 413: see WithBodyLimit
	EventAnswerTooLarge core.EventKind = "answer_too_large" // 500: the response is too large to be held back; see the log

	EventIdempotencyKey      core.EventKind = "idempotency_key"       // 400: missing where it is required, or malformed
	EventIdempotencyInFlight core.EventKind = "idempotency_in_flight" // 409: the first request with this key is not over
	EventIdempotencyMismatch core.EventKind = "idempotency_mismatch"  // 422: the key belongs to a different request or sender
	EventIdempotencyOmitted  core.EventKind = "idempotency_omitted"   // 410: of the first response only the status was recorded

	EventReplayed   core.EventKind = "replayed"    // a request was answered from the record of its Idempotency-Key
	EventRecordOpen core.EventKind = "record_open" // too few nodes confirmed the record of a response: it is tried again
)

// A Refusal is a response of the middleware in place of the handler's.
type Refusal struct {
	Kind       core.EventKind
	Status     int
	RetryAfter time.Duration // when another try may succeed; 0 if unknown or pointless
	Title      string        // what happened, for people; the same for all of a kind
	Detail     string        // what to do about it
	Err        error         // why, for logs; nil if Kind says it all. It may name the key: do not send it
}

// Write sends r as application/problem+json (RFC 9457). Neither key nor holder are in it.
func (r Refusal) Write(w http.ResponseWriter) {
	kind := "urn:lockkit:httplock:" + string(r.Kind)
	text, _ := json.Marshal(map[string]any{"type": kind, "title": r.Title, "status": r.Status, "detail": r.Detail})
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.Status)
	_, _ = w.Write(text) // the client may be gone
}

// again is when to try again where nothing better is known.
const defaultRetryAfter = time.Second

// refusals are the refusals of each kind.
var refusals = map[core.EventKind]Refusal{
	EventBusy:           {"", 409, defaultRetryAfter, "Resource is busy", "Another request is working on it. Try again.", nil},
	EventDone:           {"", 409, 0, "Resource is closed", "It takes no more requests of this kind.", nil},
	EventQueueFull:      {"", 429, defaultRetryAfter, "Too many requests wait for this resource", "Send fewer at once.", nil},
	EventOverloaded:     {"", 503, defaultRetryAfter, "Too many requests", "Nothing was done. Try again later.", nil},
	EventDraining:       {"", 503, defaultRetryAfter, "Server is shutting down", "Nothing was done. Try again.", nil},
	EventUnavailable:    {"", 503, defaultRetryAfter, "Locks are unavailable", "Nothing was done. Try again later.", nil},
	EventGone:           {"", 503, defaultRetryAfter, "Request was cancelled", "Nothing was done. Try again.", nil},
	EventLost:           {"", 503, 0, "Lock was lost", "Find out what it did before you repeat it: a repetition runs again, also with the same Idempotency-Key.", nil},
	EventKeyMissing:     {"", 400, 0, "Request does not name its resource", "Nothing was done. Correct the request.", nil},
	EventMisconfigured:  {"", 500, 0, "Server is misconfigured", "Tell those who run it.", nil},
	EventBodyBroken:     {"", 400, 0, "Body could not be read", "Nothing was done. Send all of it.", nil},
	EventBodyTooLarge:   {"", 413, 0, "Body is too large", "", nil},
	EventAnswerTooLarge: {"", 500, 0, "Answer is too large", "The request was carried out.", nil},

	EventIdempotencyKey: {"", 400, 0, "Idempotency-Key is missing or malformed",
		"Send one, unique to the operation, such as a UUID: 1 to 255 visible ASCII characters without \", comma and \\, or a quoted string.", nil},
	EventIdempotencyInFlight: {"", 409, defaultRetryAfter, "Idempotency-Key is in use", "The first request with it is under way. Try again to get its answer.", nil},
	EventIdempotencyMismatch: {"", 422, 0, "Idempotency-Key was used with another request or other credentials",
		"Repeat a request as it was, with the same credentials. Use a new key only for a new request, whose effect is wanted as well.", nil},
	EventIdempotencyOmitted: {"", 410, 0, "Answer cannot be repeated", "The request was carried out.", nil},
}

// A rejection is why a request is refused. It is an error so that what makes a key can return it.
type rejection struct {
	kind       core.EventKind
	detail     string        // for the client; empty: that of the kind
	retryAfter time.Duration // when another try may succeed; 0: as for the kind
	err        error         // for logs; nil if kind says it all
}

func (r *rejection) Error() string { return fmt.Sprintf("httplock: %s: %v", r.kind, r.err) }

func (r *rejection) Unwrap() error { return r.err }

var errOverloaded = &rejection{kind: EventOverloaded}

func misconfigured(format string, args ...any) *rejection {
	return &rejection{kind: EventMisconfigured, err: fmt.Errorf(format, args...)}
}

// misplaced is the rejection of a request whose middleware is in a place where it cannot do its work. The advice says where
// it belongs.
func misplaced(advice, format string, args ...any) *rejection {
	return &rejection{kind: EventMisconfigured, detail: advice, err: fmt.Errorf("%w. %s", fmt.Errorf(format, args...), advice)}
}

// denied is the rejection of a request that got no lease, where held is the kind if somebody else has it.
func rejectionFor(err error, held core.EventKind) *rejection {
	op, ok := errors.AsType[*core.OpError](err)
	switch {
	case ok && op.Held == core.HeldByCaller:
		return misconfigured("the request runs under a lease on this key already, as in a function of core.Locker.Do: %w", err)
	case ok && op.Held == core.HeldRests:
		return &rejection{kind: held, detail: fmt.Sprintf("Nobody works on it: the key rests for %ds. Try again after that.", seconds(op.RetryAfter)), err: err}
	}
	switch core.ClassOf(err) {
	case core.ClassInvalid:
		return &rejection{kind: EventMisconfigured, err: err}
	case core.ClassClosed:
		return &rejection{kind: EventDraining, err: err}
	case core.ClassDone:
		return &rejection{kind: EventDone, err: err}
	case core.ClassHeld:
		return &rejection{kind: held, err: err}
	case core.ClassLost: // of a lease that the request had already
		return &rejection{kind: EventLost, detail: "Nothing was done. Try again.", retryAfter: defaultRetryAfter, err: err}
	case core.ClassUnavailable:
		return &rejection{kind: EventUnavailable, err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) { // by which no quorum has answered
		return &rejection{kind: EventUnavailable, err: err}
	}
	return &rejection{kind: EventGone, err: err}
}
