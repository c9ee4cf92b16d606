package httplock

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// Record makes the response of the handler of r an outcome with any status. It is for a handler that fails although its
// effect stands: a payment was made, and the confirmation could not be sent. Repetitions then get this response. By
// default, a response that invites a retry is not recorded, and the handler of a repetition runs.
//
// If the handler panics after that, or its response is cut short, only the status is recorded, and repetitions get 410.
// After the loss of a lease nothing is recorded. Record must be called before the handler returns. Without an
// Idempotency-Key, or without a Lock, it does nothing. It finds the Lock by the context of r, as [Lost] does. It may be
// called from any goroutine.
func Record(r *http.Request) {
	if rs, ok := r.Context().Value(lockKey).(*requestState); ok {
		rs.recordForced.Store(true)
	}
}

// retryStatuses ask the client for another try, later or with other credentials.
var retryStatuses = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
	http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests, statusClientClosedRequest,
}

// statusClientClosedRequest is the status with which nginx and grpc-gateway say that the client has left.
const statusClientClosedRequest = 499

// invitesRetry reports whether a response is not an outcome: the handler of a repetition must run.
func invitesRetry(status int, h http.Header) bool {
	switch {
	case status >= 500, slices.Contains(retryStatuses, status):
		return true
	case status >= 400:
		return hasValue(h, "Retry-After")
	}
	return false
}

// Headers of records. They are not headers of the response.
const (
	omittedHeader = "Idempotent-Omitted" // "true": the record has no body
	removedHeader = "Idempotent-Removed" // the names of headers that the handler removed
	unsetHeader   = "Idempotent-Unset"   // the names of headers that the handler set to nil: net/http must not set them
)

// isReserved reports whether a header is the middleware's own rather than the handler's: a header of records or of
// repetitions.
func isReserved(name string) bool { return strings.HasPrefix(name, "Idempotent-") }

// unrepeatedHeaders belong to one response, and not to its repetitions.
var unrepeatedHeaders = []string{"Connection", "Date", "Keep-Alive", "Set-Cookie", "Upgrade"}

// encodeRecord returns the record of a response. If the response is too large, the record has the status only.
func (rs *requestState) encodeRecord(w *response) []byte {
	h := recordedHeader(w.frozen, w.before)

	// The header counts, too: a short body with a long header may still be too large.
	if len(w.body) <= rs.m.maxRecord && w.state != stateOversized {
		record := rs.marshalRecord(w.status, h, w.body)
		if len(record) <= rs.m.maxRecord {
			return record
		}
	}
	return rs.encodeStatus(w.status)
}

// recordedHeader returns the header of a record. It has the changes that the handler made to the header before. The
// values of before are left out: a repetition gets its own, which may differ. For example, a middleware that compresses
// does so only for clients that accept it.
func recordedHeader(h, before http.Header) http.Header {
	recorded := http.Header{}
	for name, values := range h {
		if len(values) > 0 && !slices.Equal(values, before[name]) {
			name = http.CanonicalHeaderKey(name) // the handler may have spelled it in another way
			recorded[name] = append(recorded[name], slices.DeleteFunc(slices.Clone(values), hasControls)...)
		}
	}
	maps.DeleteFunc(recorded, func(name string, _ []string) bool {
		return isReserved(name) || slices.Contains(unrepeatedHeaders, name)
	})

	// Of a header that the handler removed or set to nil, the record has the name.
	for name := range before {
		if _, ok := h[name]; !ok && !hasControls(name) {
			recorded.Add(removedHeader, name)
		}
	}
	for name, values := range h {
		if len(values) == 0 && !hasControls(name) {
			recorded.Add(unsetHeader, name)
		}
	}
	return recorded
}

// hasControls reports whether a name or a value of a header has control characters, which no client may accept. A record
// with one could not be read. net/http itself takes care of those that end a line.
func hasControls(value string) bool {
	return strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\r\n", r) || r == 0x7f })
}

// encodeStatus returns the record of a response that cannot be repeated.
func (rs *requestState) encodeStatus(status int) []byte {
	return rs.marshalRecord(status, http.Header{omittedHeader: {"true"}}, nil)
}

// marshalRecord returns the fingerprint of the request, followed by a response in HTTP's own format.
func (rs *requestState) marshalRecord(status int, h http.Header, body []byte) []byte {
	record := make([]byte, 0, 2<<10+len(body)) // enough for most headers
	record = append(record, rs.identity.fingerprint[:]...)
	b := bytes.NewBuffer(record)

	resp := http.Response{
		StatusCode:    status,
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        h,
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(bytes.NewReader(body)),
	}
	_ = resp.Write(b) // a write to memory does not fail
	return b.Bytes()
}

// replay responds with the response of a record. If it cannot, it returns a rejection.
func (rs *requestState) replay(record []byte) error {
	// Another fingerprint belongs to another request with the same Idempotency-Key.
	encoded, isSame := bytes.CutPrefix(record, rs.identity.fingerprint[:])
	if !isSame {
		return &rejection{kind: EventIdempotencyMismatch}
	}
	status, header, body, err := decodeRecord(encoded)
	if err != nil {
		return misconfigured("the record of an Idempotency-Key cannot be read: %w", err)
	}

	if rs.isOver() {
		return &rejection{kind: EventGone, err: errHandlerReturned}
	}

	// Set on the client's header, so that the refusal below has it, too.
	rs.w.Header().Set("Idempotent-Replayed", "true")
	if header.Get(omittedHeader) != "" {
		rs.w.Header().Set("Idempotent-Status", strconv.Itoa(status))
		return &rejection{kind: EventIdempotencyOmitted}
	}

	rs.replayed = true
	rs.report(EventReplayed, nil)
	rs.respond(status, func(w http.ResponseWriter) bool {
		restoreHeader(w.Header(), header)
		_, _ = w.Write(body)
		return true
	})
	return nil
}

// decodeRecord returns the response of a record. It does not use http.ReadResponse, which adds a Cache-Control to a
// response with Pragma: no-cache.
func decodeRecord(encoded []byte) (status int, header http.Header, body []byte, err error) {
	in := textproto.NewReader(bufio.NewReader(bytes.NewReader(encoded)))
	line, err := in.ReadLine() // HTTP/1.1 200 OK
	if err != nil {
		return 0, nil, nil, err
	}
	_, afterProtocol, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(afterProtocol, " ")
	status, err = strconv.Atoi(code)
	if err != nil {
		return 0, nil, nil, err
	}

	mimeHeader, err := in.ReadMIMEHeader()
	if err != nil {
		return 0, nil, nil, err
	}
	body, err = io.ReadAll(in.R)
	if err != nil {
		return 0, nil, nil, err
	}

	isWhole := len(body) == 0 || mimeHeader.Get("Content-Length") == strconv.Itoa(len(body))
	if !isWhole {
		return 0, nil, nil, io.ErrUnexpectedEOF
	}
	return status, http.Header(mimeHeader), body, nil
}

// restoreHeader applies the changes of recordedHeader to the header of a repetition.
func restoreHeader(h, recorded http.Header) {
	for _, name := range recorded[removedHeader] {
		delete(h, name)
	}

	for name, values := range recorded {
		if name != "Content-Length" && !isReserved(name) { // a middleware further out may change the length
			h[name] = values
		}
	}

	for _, name := range recorded[unsetHeader] {
		h[name] = nil
	}
}
