package httplock

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A claim is an idempotent request's hold on its Idempotency-Key.
type claim struct {
	fingerprint []byte
	grant       *grant
}

// identifyOnce finds the Idempotency-Key.
func (x *exchange) identifyOnce(tenant string) bool {
	r := x.c.Request
	values := r.Header.Values("Idempotency-Key")
	switch {
	case x.m.idempotency == idempotencyOff, x.m.idempotency == idempotencyOptional && len(values) == 0:
		return true
	case len(values) == 0:
		return x.refuse(EventIdempotencyMissing, nil)
	}
	key, ok := parseIdempotencyKey(values)
	if !ok {
		return x.refuse(EventIdempotencyMalformed, nil)
	}
	once := core.Key(idempotent, tenant, r.Method, x.route, key)
	if x.outer.has(x.m.locker, once) {
		return true // an outer Lock sees to it
	}
	x.inner.once, x.once = once, &claim{}
	return true
}

const longestIdempotencyKey = 255

var (
	quotedKey = regexp.MustCompile(`^"((?:[ !#-\[\]-~]|\\["\\])*)"$`) // a string of RFC 8941, as the draft has it
	bareKey   = regexp.MustCompile(`^[!#-+\--\[\]-~]*$`)              // visible characters, as many clients send it
	unescape  = strings.NewReplacer(`\\`, `\`, `\"`, `"`)
)

// parseIdempotencyKey returns the key of the header's one value. Both ways of writing it are the same key.
func parseIdempotencyKey(values []string) (key string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	if quoted := quotedKey.FindStringSubmatch(values[0]); quoted != nil {
		key = unescape.Replace(quoted[1])
	} else if bareKey.MatchString(values[0]) {
		key = values[0]
	}
	return key, key != "" && len(key) <= longestIdempotencyKey
}

// fingerprintOf tells requests apart that must not share an Idempotency-Key.
func fingerprintOf(r *http.Request, b body) []byte {
	h := sha256.New()
	h.Write([]byte(core.Key(r.URL.EscapedPath(), r.URL.RawQuery)))
	h.Write(b.data)
	return h.Sum(nil)
}

// claim makes this request the one that runs under its Idempotency-Key, and reports whether it is. If another one did, or
// does, the request is answered.
func (x *exchange) claim(b body) bool {
	if !b.whole {
		return x.refuse(EventBodyTooLarge, clientError("With an Idempotency-Key, the body must be smaller."))
	}
	x.once.fingerprint = fingerprintOf(x.c.Request, b)
	var err error
	x.once.grant, err = x.acquire(x.inner.once, 0)
	if op, ok := errors.AsType[*core.OpError](err); ok && op.Record != nil {
		return x.answerFrom(op.Record)
	}
	return err == nil || x.refuse(denied(err, EventIdempotencyInFlight), err)
}

// answerFrom answers with the outcome of the first request. Like refuse, it reports that the request does not go on.
func (x *exchange) answerFrom(r *core.Record) bool {
	o, err := parseOutcome(r.Result)
	switch {
	case err != nil:
		return x.refuse(EventMisconfigured, err)
	case string(o.Fingerprint) != string(x.once.fingerprint):
		return x.refuse(EventIdempotencyMismatch, nil)
	}
	x.count(EventReplayed)
	o.replay(x.c)
	return false
}

// recordFor is for how long a record is repeated that no quorum has confirmed.
const recordFor = 30 * time.Second

// record records the handler's answer as the outcome, and reports whether it counts. Where too few nodes answer
// it does: the key was held to the end. It is then recorded in the background, as long as that may help: releasing the
// key instead would have the next request run again.
func (x *exchange) record(w *response) bool {
	g, ctx := x.once.grant, context.WithoutCancel(x.ctx)
	result := outcomeOf(x.once.fingerprint, w, x.m.replayHeaders).encode()
	err := g.Complete(ctx, result)
	if errors.Is(err, core.ErrLost) {
		return false
	}
	g.settled = true
	if err == nil {
		x.count(EventRecorded)
		return true
	}
	x.count(EventRecordOpen)
	x.m.admission.inside.Go(func() { // gin uses x.c for another request by then
		ctx, stop := core.Join(ctx, x.m.admission.draining) // whose end has it try for a last time
		defer stop()
		if g.Complete(ctx, result, core.RetryFor(recordFor)) == nil {
			x.count(EventRecorded)
		}
	})
	return true
}
