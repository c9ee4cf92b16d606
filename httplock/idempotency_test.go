package httplock

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// A shop is a route with an effect, which replicas share.
type shop struct {
	payments atomic.Int32
	status   int
	before   gin.HandlerFunc // runs before the effect
}

func (s *shop) replica(t testing.TB, locks *core.Locker, opts ...Option) (*gin.Engine, *Middleware) {
	m := middleware(t, locks, append([]Option{WithIdempotency(false, NoSender)}, opts...)...)
	r := router()
	r.POST("/orders/:id/payments", m.Lock, s.handle)
	return r, m
}

func (s *shop) handle(c *gin.Context) {
	if s.before != nil {
		s.before(c)
	}
	n := s.payments.Add(1)
	c.Header("Location", fmt.Sprintf("/payments/%d", n))
	c.Header("Set-Cookie", "session=secret")
	c.JSON(s.status, gin.H{"payment": n})
}

const path = "/orders/1/payments"

func pay(r http.Handler, key string, more ...string) reply {
	return call(r, "POST", path, `{"amount":1}`, append([]string{"Idempotency-Key", key}, more...)...)
}

func (s *shop) expect(t testing.TB, payments int) {
	t.Helper()
	if n := int(s.payments.Load()); n != payments {
		t.Errorf("%d payments, want %d", n, payments)
	}
}

// replays checks that r repeats first.
func (r reply) replays(t testing.TB, first reply) {
	t.Helper()
	if r.status != first.status || r.body != first.body || r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"Location", "Content-Type"} {
		if r.header.Get(name) != first.header.Get(name) {
			t.Errorf("%s: %q", name, r.header.Get(name))
		}
	}
}

func TestIdempotencyKeysThatAreNone(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := &shop{status: 201}
		r, _ := s.replica(w, w.locker, WithIdempotency(true, NoSender), WithBodyLimit(100))
		call(r, "POST", path, "").expect(w, 400, EventIdempotencyKey)
		for _, key := range []string{"", `""`, `"`, `"a`, `a"`, `"a"b"`, `"a\"`, `"a\x"`, "a b", "a,b", "a\tb", "é", `"é"`, "a\x7f",
			strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`, strings.Repeat("k", 100_000), `"a";`, `"a" ;p`, `"a";P=1`, `"a";p=`} {
			pay(r, key).expect(w, 400, EventIdempotencyKey)
		}
		pay(r, "a", "Idempotency-Key", "b").expect(w, 400, EventIdempotencyKey)
		call(r, "POST", path, strings.Repeat("x", 101), "Idempotency-Key", "k").expect(w, 413, EventBodyTooLarge)
		s.expect(w, 0)
		for i, key := range []string{strings.Repeat("k", 255), `"` + strings.Repeat("k", 254) + `"`, `"a b,\"\\"`, "8e03978e-40d5-43dd-bc93-6894a57f9324", "{k}:*"} {
			pay(r, key)
			s.expect(w, i+1)
		}
	})
}

// A refusal because of an Idempotency-Key does not suggest a new key for what may be the same request, because the
// request would run again.
func TestIdempotencyRefusalsSayWhatToDo(t *testing.T) {
	bubble(t, 1, func(w *world) {
		r, m := (&shop{status: 201}).replica(w, w.holding(), WithIdempotency(true, NoSender))
		r.POST("/lost", m.Lock, (&shop{status: 201, before: func(c *gin.Context) { expire(c.Request.Context()) }}).handle)
		pay(r, "k", "Authorization", "Bearer old")
		for text, got := range map[string]reply{
			"Send one, unique to the operation, such as a UUID":               call(r, "POST", path, ""),
			"1 to 255 visible ASCII characters":                               pay(r, "a b"),
			"with the same credentials. Use a new key only for a new request": pay(r, "k", "Authorization", "Bearer renewed"),
			"a repetition runs again, also with the same Idempotency-Key":     call(r, "POST", "/lost", "", "Idempotency-Key", "k"),
		} {
			if got.kind(w); !strings.Contains(got.body, text) {
				w.Errorf("%s does not say %q", got.body, text)
			}
		}
	})
}
