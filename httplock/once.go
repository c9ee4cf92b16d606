package httplock

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

const idempotencyKey = "Idempotency-Key"

// idempotencyKeys are a string of RFC 8941, as the draft has it, or visible characters, as many clients send it. Both ways
// of writing it are the same key.
var idempotencyKeys = regexp.MustCompile(`^(?:"((?:[ !#-\[\]-~]|\\["\\])*)"|([!#-+\--\[\]-~]*))$`)

// makeOnceKey makes the key under which the request runs once, and what else tells it from others with that key.
func (x *exchange) makeOnceKey(tenant string) error {
	r := x.r
	key := ""
	if given := idempotencyKeys.FindStringSubmatch(strings.Join(r.Header[idempotencyKey], ",")); given != nil {
		key = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(given[1]) + given[2]
	}
	if key == "" || len(key) > 255 {
		return &rejection{kind: EventIdempotencyKey}
	}
	x.onceKey = core.Key("http/idempotent", x.m.service, tenant, r.Method, strings.ToLower(r.Host), x.route, key)
	identity := sha256.Sum256([]byte(x.onceKey))
	x.identity = hex.EncodeToString(identity[:])

	target := r.RequestURI // which http.StripPrefix leaves as it was
	if u, err := url.ParseRequestURI(target); err == nil && u.Host != "" {
		target = u.RequestURI() // the same target in absolute form
	}
	parts := []string{target, r.URL.EscapedPath(), r.URL.RawQuery, string(x.body)}
	if x.m.tenant == nil { // who sends it
		for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
			parts = append(parts, core.Key(r.Header[name]...))
		}
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			parts = append(parts, string(r.TLS.PeerCertificates[0].Raw))
		}
	}
	x.fingerprint = sha256.Sum256([]byte(core.Key(parts...)))
	return nil
}

// asksAgain reports whether an answer asks for another try, so that a repetition is to run again.
func asksAgain(status int, h http.Header) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status >= 400 && h.Get("Retry-After") != ""
}

const (
	largestRecord = 60 << 10
	recordFor     = 30 * time.Second     // for how long a record is tried that no quorum has confirmed
	omitted       = "Idempotent-Omitted" // a header of records without a body
)

// record records an answer, and returns the error of a lease that was lost before. Where too few nodes answer, the answer
// counts all the same, since the key was held to the end, and the record is tried in the background: to release the key
// instead would make the next request run again.
func (x *exchange) record(lease *core.Lease, answer []byte) (loss error) {
	err := lease.Complete(lease.Context(), answer) // one round
	if err == nil || errors.Is(err, core.ErrLost) {
		return err
	}
	x.count(EventRecordOpen)
	log := x.m.locker.Logger().With("route", x.route, "identity", x.identity)
	log.Warn("httplock: an answer may not be recorded: a repetition of its request may run again", "err", err)
	x.m.admission.inside.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(lease.Context()), recordFor)
		defer cancel()
		ctx, stop := join.Contexts(ctx, x.m.admission.draining)
		defer stop()
		if err := lease.Complete(ctx, answer); err != nil {
			log.Error("httplock: an answer was not recorded: a repetition of its request may run again", "err", err)
		}
	})
	return nil
}

// encode returns what is recorded of an answer. What was set further out is left out: it is set again for a repetition, or
// not for a reason, as by a middleware that compresses for those who accept it. So is what belongs to one answer only.
func (x *exchange) encode(w *response) []byte {
	h := w.answered().Clone()
	maps.DeleteFunc(h, func(name string, values []string) bool { return slices.Equal(values, x.w.Header()[name]) })
	for _, name := range []string{"Connection", "Date", "Keep-Alive", "Set-Cookie", "Upgrade"} {
		h.Del(name)
	}
	b := x.wire(w.status, h, w.body)
	if len(b) > largestRecord || w.state == oversized || w.short() {
		return x.wire(w.status, http.Header{omitted: {"true"}}, nil)
	}
	return b
}

// wire returns the fingerprint of the request, and an answer in HTTP's own format.
func (x *exchange) wire(status int, h http.Header, body []byte) []byte {
	b := bytes.NewBuffer(slices.Clone(x.fingerprint[:]))
	answer := http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h, ContentLength: int64(len(body))}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	_ = answer.Write(b) // to memory
	return b.Bytes()
}

// replay answers with a record once more.
func (x *exchange) replay(record []byte) error {
	if len(record) < sha256.Size || [sha256.Size]byte(record) != x.fingerprint {
		return &rejection{kind: EventIdempotencyMismatch}
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(record[sha256.Size:])), nil)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(answer.Body)
	}
	if err != nil {
		return misconfigured("the record of an Idempotency-Key cannot be read: %w", err)
	}
	x.w.Header().Set("Idempotent-Replayed", "true")
	if answer.Header.Get(omitted) != "" {
		x.w.Header().Set("Idempotent-Status", strconv.Itoa(answer.StatusCode))
		return &rejection{kind: EventIdempotencyOmitted}
	}
	x.count(EventReplayed)
	answer.Header.Del("Content-Length") // what is further out may change it
	x.answer(answer.StatusCode, answer.Header, func(w *response, _ *http.Request) { _, _ = w.Write(body) })
	return nil
}
