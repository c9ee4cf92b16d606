package httplock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A Refusal is a reply of the middleware in place of the handler's.
type Refusal struct {
	Kind       core.EventKind
	Status     int
	RetryAfter time.Duration // when trying again may succeed; 0 = there is no saying, or no use
	Title      string        // what happened, for people; the same for all of a kind
	Detail     string        // what to do about it
	Err        error         // why, for logs; nil where Kind says it all. It may name the key, so it must not be sent
}

// Write sends r as application/problem+json (RFC 9457). Neither key nor holder are in it.
func (r Refusal) Write(w http.ResponseWriter) {
	problem := struct {
		Type       string `json:"type"`
		Title      string `json:"title"`
		Status     int    `json:"status"`
		Detail     string `json:"detail,omitempty"`
		RetryAfter int    `json:"retry_after,omitempty"`
	}{"urn:lockkit:httplock:" + string(r.Kind), r.Title, r.Status, r.Detail, seconds(r.RetryAfter)}
	text, _ := json.Marshal(problem) // strings and numbers: it cannot fail
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(r.Status)
	_, _ = w.Write(text) // the client may be gone
}

// seconds rounds up: Retry-After has whole seconds, and 0 would say at once.
func seconds(d time.Duration) int {
	return int((d + time.Second - 1) / time.Second)
}

// soon is when to try again where nothing better is known.
const soon = time.Second

var refusals = map[core.EventKind]Refusal{
	EventBusy:          {Status: http.StatusConflict, RetryAfter: soon, Title: "Resource is busy", Detail: "Another request is working on this resource. Try again."},
	EventDone:          {Status: http.StatusConflict, Title: "Resource is closed", Detail: "It takes no more requests of this kind."},
	EventQueueFull:     {Status: http.StatusTooManyRequests, RetryAfter: soon, Title: "Too many requests wait for this resource", Detail: "Try again later, and fewer at once."},
	EventOverloaded:    {Status: http.StatusServiceUnavailable, RetryAfter: soon, Title: "Too many requests wait", Detail: "Try again later."},
	EventDraining:      {Status: http.StatusServiceUnavailable, RetryAfter: soon, Title: "Server is shutting down", Detail: "Try again: another server will answer."},
	EventUnavailable:   {Status: http.StatusServiceUnavailable, RetryAfter: soon, Title: "Locks are unavailable", Detail: "Nothing was done. Try again later."},
	EventLost:          {Status: http.StatusServiceUnavailable, Title: "Lock was lost", Detail: "The request was stopped while it was being worked on. Find out what became of it before you repeat it."},
	EventKeyMissing:    {Status: http.StatusBadRequest, Title: "Request does not name its resource"},
	EventMisconfigured: {Status: http.StatusInternalServerError, Title: "Server is misconfigured"},
	EventBodyBroken:    {Status: http.StatusBadRequest, Title: "Body could not be read"},
	EventBodyTimeout:   {Status: http.StatusRequestTimeout, RetryAfter: soon, Title: "Body did not come in time"},
	EventBodyTooLarge:  {Status: http.StatusRequestEntityTooLarge, Title: "Body is too large"},

	EventAnswerTooLarge: {Status: http.StatusInternalServerError, Title: "Answer is too large", Detail: "The request was carried out. Its answer could not be sent."},

	EventIdempotencyMissing:   {Status: http.StatusBadRequest, Title: "Idempotency-Key is missing", Detail: "This operation requires a request header Idempotency-Key."},
	EventIdempotencyMalformed: {Status: http.StatusBadRequest, Title: "Idempotency-Key is malformed", Detail: "Send one key of 1 to 255 visible ASCII characters, in double quotes."},
	EventIdempotencyInFlight:  {Status: http.StatusConflict, RetryAfter: soon, Title: "A request with this Idempotency-Key is under way", Detail: "Try again to get its answer."},
	EventIdempotencyMismatch:  {Status: http.StatusUnprocessableEntity, Title: "Idempotency-Key was used for another request", Detail: "That one had another path, query or body, or another sender. Repeat it as it was, or use a new key."},
	EventIdempotencyOmitted:   {Status: http.StatusGone, Title: "Answer cannot be repeated", Detail: "The first request with this Idempotency-Key was carried out. Idempotent-Status has the status of its answer."},
}

// statusGone is what nginx logs when a client went away. It reaches nobody.
const statusGone = 499

// refuse answers in place of the handler, and reports that the request does not go on: false.
func (x *exchange) refuse(kind core.EventKind, err error) bool {
	x.count(kind)
	if kind != EventAnswerTooLarge { // the handler has done its work
		x.disown()
	}
	if kind == EventGone {
		x.host.answer(statusGone, nil)
		return false
	}
	r := refusals[kind]
	r.Kind, r.Err = kind, err
	if text, ok := errors.AsType[clientError](err); ok {
		r.Detail = string(text)
	}
	if op, ok := errors.AsType[*core.OpError](err); ok && op.RetryAfter > 0 {
		r.RetryAfter = op.RetryAfter
	}
	switch kind {
	case EventBusy:
		r.Status = x.m.busyStatus
	case EventBodyTooLarge:
		if r.Detail == "" {
			r.Detail = fmt.Sprintf("It must have no more than %d bytes.", largest(err, x.m.bodyLimit))
		}
	case EventQueueFull:
		r.RetryAfter = max(r.RetryAfter, x.m.maxWait) // by then all that wait have been answered
	case EventIdempotencyInFlight:
		r.RetryAfter = max(x.m.admission.usualRun(x.route), soon)
	default: // as it is
	}
	if s := seconds(r.RetryAfter); s > 0 {
		x.w.Header().Set("Retry-After", strconv.Itoa(s))
	}
	x.host.refuse(x, r)
	return false
}

// largest returns how large a body may be that was refused as too large: limit is ours.
func largest(err error, limit int) int64 {
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok && e.Limit > 0 { // somebody else's
		return e.Limit
	}
	return int64(limit)
}

// refuseKey refuses a request whose key cannot be made.
func (x *exchange) refuseKey(err error) bool {
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		return x.refuse(EventBodyTooLarge, err)
	case errors.Is(err, errRoute):
		return x.refuse(EventMisconfigured, err)
	}
	return x.refuse(EventKeyMissing, err)
}

// read reads the body, and reports whether the request goes on. Otherwise it was answered.
func (x *exchange) read(within time.Duration) bool {
	if !x.takeBody() {
		return true
	}
	err := x.readBody(within)
	_, tooLarge := errors.AsType[*http.MaxBytesError](err) // a limit that somebody else has set
	switch {
	case err == nil:
		return true
	case errors.Is(err, errBodies):
		return x.refuse(EventOverloaded, nil)
	case errors.Is(err, os.ErrDeadlineExceeded): // with which net/http cancels the context as well
		return x.refuse(EventBodyTimeout, err)
	case errors.Is(x.r.Context().Err(), context.Canceled):
		return x.refuse(EventGone, err)
	case tooLarge:
		return x.refuse(EventBodyTooLarge, err)
	}
	return x.refuse(EventBodyBroken, err)
}
