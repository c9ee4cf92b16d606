package httplock

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"net/http"

	"github.com/gin-gonic/gin"
)

const (
	recordLimit  = 64 << 10 // that core takes
	recordedBody = 60 << 10 // what is left for the body
)

// An outcome is the answer of a handler, as it is recorded.
type outcome struct {
	Fingerprint []byte      `json:"fingerprint"`
	Status      int         `json:"status"`
	Header      http.Header `json:"header,omitempty"`
	Omitted     bool        `json:"omitted,omitempty"` // the body was too large
	body        []byte
}

func outcomeOf(fingerprint []byte, w *response, headers []string) outcome {
	o := outcome{Fingerprint: fingerprint, Status: w.Status(), Header: http.Header{}, body: w.body}
	for _, name := range headers {
		if values := w.Header().Values(name); values != nil {
			o.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if w.state != keeping || len(o.body) > recordedBody {
		o.omit()
	}
	return o
}

// omit drops the body, and the headers that describe it.
func (o *outcome) omit() {
	o.Omitted, o.body = true, nil
	for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition"} {
		delete(o.Header, name)
	}
}

const outcomeVersion = 1

// encode returns a version, the length of the description, the description, the body.
func (o outcome) encode() []byte {
	for {
		description, _ := json.Marshal(o) // bytes, numbers and strings: it cannot fail
		b := append([]byte{outcomeVersion}, binary.AppendUvarint(nil, uint64(len(description)))...)
		b = append(append(b, description...), o.body...)
		switch {
		case len(b) <= recordLimit:
			return b
		case !o.Omitted:
			o.omit()
		default:
			o.Header = nil
		}
	}
}

var errOutcome = errors.New("httplock: the record of this Idempotency-Key cannot be read: it was written by a later version")

func parseOutcome(b []byte) (o outcome, err error) {
	if len(b) == 0 || b[0] != outcomeVersion {
		return o, errOutcome
	}
	n, k := binary.Uvarint(b[1:])
	if k <= 0 || n > uint64(len(b)-1-k) {
		return o, errOutcome
	}
	description := b[1+k : 1+k+int(n)]
	if json.Unmarshal(description, &o) != nil {
		return o, errOutcome
	}
	o.body = b[1+k+int(n):]
	return o, nil
}

// replay sends the outcome once more.
func (o outcome) replay(c *gin.Context) {
	c.Abort()
	h := c.Writer.Header()
	maps.Copy(h, o.Header)
	h.Set("Idempotent-Replayed", "true")
	if o.Omitted {
		h.Set("Idempotent-Body", "omitted")
	}
	c.Status(o.Status)
	c.Writer.WriteHeaderNow()
	if len(o.body) > 0 {
		_, _ = c.Writer.Write(o.body) // the client may be gone
	}
}
