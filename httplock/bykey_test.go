package httplock

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// order is the key of an order, for whoever works on one.
func order(r *http.Request) (string, error) {
	c, _ := GinContext(r)
	if c.Param("id") == "secret" {
		return "", errors.New("secret")
	}
	if id := c.Param("id"); id != "none" {
		return core.Key("order", id), nil
	}
	return "", nil
}

// The key is core's as it is, of any route; an Idempotency-Key is one beside it.
func TestByKeyIsTheKeyAsItIs(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByKey(order))
		parts := with(w, m, ByParam("id"))
		r := router()
		r.PUT("/orders/:id", m.Lock, gin.WrapF(keyOf))
		r.PUT("/a/:id", with(w, m, WithMaxWait(0)).Lock, gin.WrapF(keyOf))
		r.PUT("/parts/:id", parts.Lock, gin.WrapF(keyOf))
		r.PUT("/again/:id", with(w, parts, ByKey(order)).Lock, gin.WrapF(keyOf))
		r.PUT("/once/:id", with(w, m, WithIdempotency(true)).Lock, gin.WrapF(keyOf))
		key := core.Key("order", "42")
		for path, want := range map[string]string{
			"/orders/42": key, "/a/42": key, "/again/42": key, "/once/42": key, "/parts/42": routeKey("/parts/:id", "42"),
			"/orders/" + strings.Repeat("4", 600): core.Key("order", strings.Repeat("4", 600)),
		} {
			call(r, "PUT", path, "", "Idempotency-Key", "k").ok(w, want)
		}
		call(r, "PUT", "/orders/none", "").expect(w, 400, EventKeyMissing)
		refused := call(r, "PUT", "/orders/secret", "")
		if refused.expect(w, 400, EventKeyMissing); strings.Contains(refused.body, "secret") {
			w.Errorf("the text of an error was sent: %s", refused.body)
		}
	})
}

// A key that core refuses is a fault of the program, and not of the request.
func TestByKeyThatCoreRefuses(t *testing.T) {
	bubble(t, 1, func(w *world) {
		log := &logbook.Book{}
		id := func(r *http.Request) (string, error) { return strings.TrimPrefix(r.URL.Path, "/orders/"), nil }
		r := router()
		r.PUT("/orders/:id", middleware(w, w.replica(core.WithLogger(log.Logger())), ByKey(id)).Lock, gin.WrapF(keyOf))
		call(r, "PUT", "/orders/"+strings.Repeat("4", 512), "").ok(w, strings.Repeat("4", 512))
		call(r, "PUT", "/orders/"+strings.Repeat("4", 513), "").expect(w, 500, EventMisconfigured)
		log.Want(w, 1, "level=ERROR", "misconfigured", "route=/orders/:id", core.ErrInvalid.Error())
	})
}

// All of a key is all of it.
func TestByKeyGoesWithNoOtherPart(t *testing.T) {
	bubble(t, 1, func(w *world) {
		for want, build := range map[string]func() (*Middleware, error){
			"give no other part":         func() (*Middleware, error) { return New(w.locker, service, ByKey(order), ByParam("id")) },
			"ByKey: the function is nil": func() (*Middleware, error) { return New(w.locker, service, ByKey(nil)) },
		} {
			if _, err := build(); err == nil || !strings.Contains(err.Error(), want) {
				w.Errorf("%v, want %q", err, want)
			}
		}
	})
}
