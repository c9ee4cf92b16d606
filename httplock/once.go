package httplock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
)

// An Execution is one run of a handler behind Once, for the effect that it has.
type Execution struct {
	// Identity names the request, the same in each of its repetitions, by a hash of 64 characters. Store it beside the effect,
	// in a column that is UNIQUE: should a lease be lost between effect and record, the repetition finds the effect there.
	Identity string
	// FencingToken grows from run to run of the request. That of a Lock further in is its lease's: [core.FromContext].
	FencingToken uint64
}

// FromContext returns the Execution that ctx belongs to, in a handler behind Once whose request has an Idempotency-Key.
func FromContext(ctx context.Context) (Execution, bool) {
	if e, ok := ctx.Value(executionKey{}).(*execution); ok {
		return e.Execution, true
	}
	return Execution{}, false
}

// NewContext returns a context that belongs to e, as Once gives to a handler: for a handler's own unit test.
func NewContext(ctx context.Context, e Execution) context.Context {
	return context.WithValue(ctx, executionKey{}, &execution{Execution: e, client: ctx})
}

// Discard has the answer of the handler behind Once not be recorded, so that a repetition runs again: nothing was done, and
// trying again may succeed. Elsewhere it does nothing.
func Discard(ctx context.Context) {
	e, _ := ctx.Value(executionKey{}).(*execution)
	e.discard()
}

type executionKey struct{}

// An execution is what must be known further in of the Once around it.
type execution struct {
	Execution
	around    *execution
	client    context.Context // ends when the client goes away
	keeps     int             // how much of an answer is kept back
	discarded atomic.Bool     // the answer is not to be recorded
}

// discard has neither e nor an execution around it be recorded.
func (e *execution) discard() {
	for ; e != nil; e = e.around {
		e.discarded.Store(true)
	}
}

// once is Once, from whichever entrance.
func (m *Middleware) once(h host, w http.ResponseWriter, r *http.Request) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 && !m.idempotencyRequired {
		h.proceed()
		return
	}
	x := m.enter(h, w, r)
	if x == nil {
		return
	}
	defer m.admission.inside.Leave()
	key, ok := x.onceKey(values)
	if !ok {
		return
	}
	if _, held := m.locker.Holding(r.Context(), key); held {
		x.count(EventNested)
		h.proceed()
		return
	}
	fingerprint := x.fingerprint()
	if err := x.acquire(key, 0); err != nil {
		x.answerInstead(err, key, fingerprint)
		return
	}
	defer x.end()
	began := time.Now()
	outer, free := withoutClient(r.Context())
	defer free()
	ctx, stop := x.handlerContext(outer)
	defer stop()
	response := newResponse(x, max(m.recordLimit, kept))
	x.response = response
	sum := sha256.Sum256([]byte(key))
	e := &execution{Execution: Execution{hex.EncodeToString(sum[:]), x.lease.FencingToken()}, around: x.around, client: r.Context(), keeps: response.limit}
	h.run(response, r.WithContext(context.WithValue(ctx, executionKey{}, e)))
	m.admission.noteRun(x.route, time.Since(began))
	if x.loss() != nil || core.ClassOf(context.Cause(r.Context())) == core.ClassLost || response.state == hijacked || e.discarded.Load() || !m.records(response) {
		x.conclude(x.giveBack())
		return
	}
	x.conclude(x.record(outcomeOf(fingerprint, response, m.replayHeaders, m.recordLimit)))
}

// records reports whether the answer is to be recorded.
func (c *config) records(w *response) bool {
	status := w.Status()
	switch {
	case !statusOK(status): // net/http panics
		return false
	case c.record != nil:
		return c.record(status)
	}
	again := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status >= 400 && w.Header().Get("Retry-After") != ""
	return !again
}

// onceKey makes the key of the request, after reading its body. Otherwise the request was answered.
func (x *exchange) onceKey(values []string) (key string, ok bool) {
	if len(values) == 0 {
		return "", x.refuse(EventIdempotencyMissing, nil)
	}
	given, ok := parseIdempotencyKey(values)
	if !ok {
		return "", x.refuse(EventIdempotencyMalformed, nil)
	}
	if !x.read(x.m.bodyTimeout) {
		return "", false
	}
	if !x.body.whole {
		return "", x.refuse(EventBodyTooLarge, clientError(fmt.Sprintf("With an Idempotency-Key, the body must have no more than %d bytes.", x.m.bodyLimit)))
	}
	tenant, err := x.tenant()
	if err != nil {
		return "", x.refuseKey(err)
	}
	return core.Key(idempotent, x.m.service, tenant, x.r.Method, x.route, given), true
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

// credentials are the headers by which a request says who sends it.
var credentials = []string{"Authorization", "Cookie", "X-Api-Key"}

// fingerprint tells requests apart that must not share an Idempotency-Key.
func (x *exchange) fingerprint() []byte {
	parts := []string{x.r.RequestURI, x.r.URL.EscapedPath(), x.r.URL.RawQuery} // http.StripPrefix changes the path
	if x.m.tenant == nil {
		for _, name := range credentials {
			parts = append(parts, core.Key(x.r.Header.Values(name)...))
		}
		if t := x.r.TLS; t != nil && len(t.PeerCertificates) > 0 {
			parts = append(parts, string(t.PeerCertificates[0].Raw))
		}
	}
	content := sha256.Sum256(x.body.data)
	sum := sha256.Sum256([]byte(core.Key(append(parts, string(content[:]))...)))
	return sum[:]
}

// answerInstead answers a request that does not run: with the outcome of the first, where there is one.
func (x *exchange) answerInstead(err error, key string, fingerprint []byte) {
	op, ok := errors.AsType[*core.OpError](err)
	if !ok || op.Record == nil {
		x.refuse(denied(err, EventIdempotencyInFlight), err)
		return
	}
	o, err := parseOutcome(op.Record.Result)
	switch {
	case err != nil:
		x.refuse(EventMisconfigured, err)
	case string(o.Fingerprint) != string(fingerprint):
		x.refuse(EventIdempotencyMismatch, nil)
	default:
		x.replay(key, op.Record.Token, o)
	}
}

// withoutClient returns a context that ends as that of a request does, but not because the client has gone away.
func withoutClient(request context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(request))
	free := func() {}
	if deadline, ok := request.Deadline(); ok {
		ctx, free = context.WithDeadline(ctx, deadline)
	}
	unfollow := context.AfterFunc(request, func() {
		if cause := context.Cause(request); cause != context.Canceled && cause != context.DeadlineExceeded { //nolint:errorlint // the plain ones: a cause that wraps them is somebody's own
			cancel(cause)
		}
	})
	return ctx, func() { unfollow(); free(); cancel(nil) }
}
