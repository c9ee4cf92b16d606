package httplock

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A claim is an idempotent request's hold on its Idempotency-Key.
type claim struct {
	key         string
	fingerprint []byte
	lease       *core.Lease
}

const longestIdempotencyKey = 255

// identifyOnce finds the Idempotency-Key.
func (x *exchange) identifyOnce(tenant string) bool {
	if x.m.idempotency == idempotencyOff {
		return true
	}
	r := x.c.Request
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		if x.m.idempotency == idempotencyRequired {
			x.refuse(refusal(KindIdempotencyMissing, nil))
			return false
		}
		return true
	}
	key, ok := "", len(values) == 1
	if ok {
		key, ok = parseIdempotencyKey(values[0])
	}
	if !ok {
		x.refuse(refusal(KindIdempotencyMalformed, nil))
		return false
	}
	once := idempotent.join(tenant, r.Method, x.c.FullPath(), key)
	if x.outer.find(func(h *hold) bool { return h.once == once && h.locks == x.m.locks }) != nil {
		return true // an outer Lock sees to it
	}
	x.inner.once, x.once = once, &claim{key: once}
	return true
}

// parseIdempotencyKey reads a string of RFC 8941, in double quotes, as the draft has it; or a bare one of visible
// characters, as many clients send it. Both ways of writing one key are the same key.
func parseIdempotencyKey(value string) (string, bool) {
	quoted := strings.HasPrefix(value, `"`)
	if quoted {
		if len(value) < 2 || !strings.HasSuffix(value, `"`) {
			return "", false
		}
		value = value[1 : len(value)-1]
	}
	var key strings.Builder
	for i := 0; i < len(value); i++ {
		b := value[i]
		switch {
		case b < ' ' || b > '~':
			return "", false
		case !quoted && (b == ' ' || b == '"' || b == '\\' || b == ','):
			return "", false
		case b == '"':
			return "", false
		case b == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", false
			}
			b = value[i]
		}
		key.WriteByte(b)
	}
	return key.String(), key.Len() >= 1 && key.Len() <= longestIdempotencyKey
}

// fingerprintOf tells requests apart that must not share an Idempotency-Key.
func fingerprintOf(r *http.Request, b body) []byte {
	h := sha256.New()
	h.Write([]byte(namespace("").join(r.URL.EscapedPath(), r.URL.RawQuery)))
	h.Write(b.data)
	return h.Sum(nil)
}

// claim makes this request the one that runs under its Idempotency-Key. If another one did, or does, it answers.
func (x *exchange) claim(b body) bool {
	if !b.whole {
		x.refuse(refusal(KindBodyTooLarge, unfit("With an Idempotency-Key, the body must be smaller.")))
		return false
	}
	once := x.once
	once.fingerprint = fingerprintOf(x.c.Request, b)
	lease, err := x.acquire(func(ctx context.Context) (*core.Lease, error) { return x.m.locks.TryAcquire(ctx, once.key, x.opts...) })
	op, ok := errors.AsType[*core.OpError](err)
	switch {
	case ok && errors.Is(err, core.ErrDone):
		x.answerFrom(op.Record)
		return false
	case err != nil:
		x.refuse(x.denied(err, KindIdempotencyInFlight))
		return false
	}
	once.lease, x.ctx = lease, lease.Context()
	return true
}

// answerFrom answers with the outcome of the first request.
func (x *exchange) answerFrom(r *core.Record) {
	o, err := parseOutcome(r.Result)
	switch {
	case err != nil:
		x.refuse(refusal(KindMisconfigured, err))
		return
	case string(o.Fingerprint) != string(x.once.fingerprint):
		x.refuse(refusal(KindIdempotencyMismatch, nil))
		return
	}
	x.count(KindReplayed)
	o.replay(x.c)
}

// record records the handler's answer as the outcome, and reports whether it counts. Where too few nodes answer
// it does: the key was held to the end. It is then recorded in the background, as long as that may help.
func (x *exchange) record(w *response) bool {
	lease := x.once.lease
	ctx := context.WithoutCancel(lease.Context())
	result := outcomeOf(x.once.fingerprint, w, x.m.replayHeaders).encode()
	err := lease.Complete(ctx, result)
	if err == nil {
		x.count(KindRecorded)
		return true
	}
	if errors.Is(err, core.ErrLost) {
		return false
	}
	x.count(KindRecordOpen)
	x.once.lease = nil
	m, house, route := x.m, x.m.house, x.c.FullPath()
	house.spawn(func() {
		if insist(ctx, house, lease, result) {
			m.event(ctx, route, KindRecorded)
		}
	})
	return true
}

const (
	insistFor   = 30 * time.Second
	insistEvery = time.Second
)

// insist repeats a record whose fate is open, and reports whether it stands in the end. Releasing the key instead
// would have the next one run again.
func insist(ctx context.Context, house *house, lease *core.Lease, result []byte) bool {
	ticker := time.NewTicker(insistEvery)
	defer ticker.Stop()
	end := time.NewTimer(insistFor)
	defer end.Stop()
	for {
		select {
		case <-ticker.C:
		case <-end.C:
			return false
		case <-house.draining.Done(): // one last time
			return lease.Complete(ctx, result) == nil
		}
		if err := lease.Complete(ctx, result); !errors.Is(err, core.ErrUnavailable) {
			return err == nil
		}
	}
}
