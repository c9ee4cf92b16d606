package httplock

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Record makes the response of the handler of r an outcome, whatever its status. It is for a handler whose effect stands
// although it fails: a payment was made, and the confirmation could not be sent. Repetitions then get this response. By
// default, a response that invites a retry is not recorded, and the handler of a repetition runs.
//
// If the handler panics after that, or its response is cut short, only the status is recorded, and repetitions get 410.
// After the loss of a lease nothing is recorded. Record must be called before the handler returns. Without an
// Idempotency-Key, or without a Lock, it does nothing. It may be called from any goroutine.
func Record(r *http.Request) {
	if rs, ok := r.Context().Value(lockKey).(*requestState); ok {
		rs.recordForced.Store(true)
	}
}

// invitations are statuses that ask the client for another try, later or with other credentials. So do those from 500 on,
// and every error with a Retry-After.
var retryStatuses = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
	http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests,
}

// invitesRetry reports whether an answer is no outcome, so that a repetition of its request has to run.
func invitesRetry(status int, h http.Header) bool {
	return status >= 500 || slices.Contains(retryStatuses, status) || status >= 400 && h.Get("Retry-After") != ""
}

const maxRecord = 60 << 10

// These headers are of records only. They are no headers of an answer.
const (
	omittedHeader = "Idempotent-Omitted" // the record has no body
	removedHeader = "Idempotent-Removed" // a header that the handler has removed
	unsetHeader   = "Idempotent-Unset"   // a header that the handler has set to nil, so that net/http does not set it either
)

// middlewares reports whether a header is the middleware's own, and not the handler's: one of records, or of repetitions.
func isReserved(name string) bool { return strings.HasPrefix(name, "Idempotent-") }

// own are headers that belong to one answer, and not to its repetitions.
var unrepeatedHeaders = []string{"Connection", "Date", "Keep-Alive", "Set-Cookie", "Upgrade"}

// encode returns what is recorded of an answer. What was set further out is left out: it is set again for a repetition, or
// not for a reason, as by a middleware that compresses for those who accept it.
func (rs *requestState) encodeRecord(w *response) []byte {
	outer := rs.w.Header()
	h := maps.Clone(w.frozen)
	maps.DeleteFunc(h, func(name string, values []string) bool {
		return slices.Contains(unrepeatedHeaders, name) || isReserved(name) || len(values) == 0 || slices.Equal(values, outer[name])
	})
	for name := range outer {
		if _, there := w.frozen[name]; !there {
			h.Add(removedHeader, name)
		}
	}
	for name, values := range w.frozen {
		if len(values) == 0 {
			h.Add(unsetHeader, name)
		}
	}

	if len(w.body) <= maxRecord && w.state != stateOversized {
		b := rs.marshalRecord(w.status, h, w.body)
		if len(b) <= maxRecord {
			return b
		}
	}
	return rs.encodeStatus(w.status)
}

// withoutBody returns what is recorded of an answer that cannot be repeated.
func (rs *requestState) encodeStatus(status int) []byte {
	return rs.marshalRecord(status, http.Header{omittedHeader: {"true"}}, nil)
}

// wire returns the fingerprint of the request, and an answer in HTTP's own format.
func (rs *requestState) marshalRecord(status int, h http.Header, body []byte) []byte {
	b := bytes.NewBuffer(append(make([]byte, 0, 2<<10+len(body)), rs.identity.fingerprint[:]...)) // most headers fit
	answer := http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}
	_ = answer.Write(b) // to memory
	return b.Bytes()
}

// replay answers with a record once more. If it cannot, the error is a rejection.
func (rs *requestState) replay(record []byte) error {
	recorded, same := bytes.CutPrefix(record, rs.identity.fingerprint[:])
	if !same {
		return &rejection{kind: EventIdempotencyMismatch}
	}
	answer, body, err := decodeRecord(recorded)
	if err != nil {
		return misconfigured("the record of an Idempotency-Key cannot be read: %w", err)
	}
	rs.w.Header().Set("Idempotent-Replayed", "true")
	if answer.Header.Get(omittedHeader) != "" {
		rs.w.Header().Set("Idempotent-Status", strconv.Itoa(answer.StatusCode))
		return &rejection{kind: EventIdempotencyOmitted}
	}

	rs.replayed = true
	rs.report(EventReplayed, nil)
	rs.respond(answer.StatusCode, func(w http.ResponseWriter) bool {
		restoreHeader(w.Header(), answer.Header)
		_, _ = w.Write(body)
		return true
	})
	return nil
}

// decode returns the answer that is recorded.
func decodeRecord(recorded []byte) (*http.Response, []byte, error) {
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(recorded)), nil)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer, body, err
}

// restore makes the headers of a repetition those of the first answer.
func restoreHeader(h, recorded http.Header) {
	for _, name := range recorded[removedHeader] {
		delete(h, name)
	}
	for name, values := range recorded {
		if name != "Content-Length" && !isReserved(name) { // what is further out may change the length
			h[name] = values
		}
	}
	for _, name := range recorded[unsetHeader] {
		h[name] = nil
	}
}
