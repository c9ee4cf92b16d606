package httplock

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
)

const largestRecord = 64 << 10 // that core takes

// An outcome is the answer of a handler, as it is recorded.
type outcome struct {
	Fingerprint []byte      `json:"fingerprint"`
	Status      int         `json:"status"`
	Header      http.Header `json:"header,omitempty"`
	Omitted     bool        `json:"omitted,omitempty"` // the body was too large
	Parts       int         `json:"parts,omitempty"`   // in how many the body is recorded apart; 0 = it is here
	body        []byte
}

// outcomeOf leaves out the headers that stood before the handler ran: whoever set them sets them again for a repetition, or
// has a reason not to, as a middleware that compresses for those who accept that.
func outcomeOf(fingerprint []byte, w *response, headers []string, limit int) outcome {
	o := outcome{Fingerprint: fingerprint, Status: w.Status(), Header: http.Header{}, body: w.body}
	for _, name := range headers {
		if values := w.Header().Values(name); values != nil && !slices.Equal(values, w.old.Values(name)) {
			o.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if w.state != keeping || len(o.body) > limit || !w.whole() {
		o.omit()
	}
	return o
}

// omit drops the body, and the headers that describe it.
func (o *outcome) omit() {
	o.Omitted, o.Parts, o.body = true, 0, nil
	maps.DeleteFunc(o.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Content-") })
}

// statusOK reports whether status is that of an answer.
func statusOK(status int) bool { return status >= 200 && status <= 999 }

const (
	outcomeVersion = 1
	mostParts      = 1 << 10
)

// bytes returns a version, the length of the description, the description, the body.
func (o outcome) bytes() []byte {
	description, _ := json.Marshal(o) // bytes, numbers and strings: it cannot fail
	b := append([]byte{outcomeVersion}, binary.AppendUvarint(nil, uint64(len(description)))...)
	return append(append(b, description...), o.body...)
}

// encode returns as much of bytes as fits into a record.
func (o outcome) encode() []byte {
	for {
		switch b := o.bytes(); {
		case len(b) <= largestRecord:
			return b
		case !o.Omitted:
			o.omit()
		default:
			o.Header = nil
		}
	}
}

var errOutcome = errors.New("httplock: the record of this Idempotency-Key cannot be read: it was written by a later version, or by something else")

func parseOutcome(b []byte) (o outcome, err error) {
	if len(b) == 0 || b[0] != outcomeVersion {
		return o, errOutcome
	}
	n, k := binary.Uvarint(b[1:])
	if k <= 0 || n > uint64(len(b)-1-k) {
		return o, errOutcome
	}
	description := b[1+k : 1+k+int(n)]
	if json.Unmarshal(description, &o) != nil || !statusOK(o.Status) || o.Parts < 0 || o.Parts > mostParts {
		return o, errOutcome
	}
	o.body = b[1+k+int(n):]
	return o, nil
}
