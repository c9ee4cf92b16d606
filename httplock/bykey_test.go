package httplock

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// A route and whoever else uses its key exclude each other, in whatever process, and share fencing tokens.
func TestByKeySharesWithOthers(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var tokens []uint64
		note := func(ctx context.Context) {
			lease, _ := core.FromContext(ctx)
			tokens = append(tokens, lease.FencingToken())
		}
		inHandler, goOn := make(chan struct{}, 1), make(chan struct{})
		r := router()
		r.PUT("/orders/:id", middleware(w, w.locker, ByKey(order)).Lock, func(c *gin.Context) {
			note(c.Request.Context())
			inHandler <- struct{}{}
			<-goOn
			c.String(200, "done")
		})
		request := func() func() reply { return background(func() reply { return call(r, "PUT", "/orders/42", "") }) }
		other, key := w.replica(), core.Key("order", "42")
		do := func(ctx context.Context) error { note(ctx); return nil }

		for range 2 {
			answer := request()
			<-inHandler
			if err := other.TryDo(w.Context(), key, do); !errors.Is(err, core.ErrHeld) {
				w.Errorf("while the handler runs: %v", err)
			}
			waited := background(func() error { return other.Do(w.Context(), key, do) })
			synctest.Wait()
			goOn <- struct{}{}
			answer().ok(w, "done")
			if err := waited(); err != nil {
				w.Error(err)
			}
		}
		err := other.Do(w.Context(), key, func(ctx context.Context) error {
			note(ctx)
			answer := request()
			time.Sleep(time.Second) // of the bubble
			if len(inHandler) != 0 {
				w.Error("the handler runs under a key that is held")
			}
			go func() { goOn <- struct{}{}; answer().ok(w, "done") }()
			return nil
		})
		if err != nil {
			w.Error(err)
		}
		<-inHandler
		synctest.Wait()
		if len(tokens) != 6 {
			w.Errorf("tokens %v", tokens)
		}
		for i := 1; i < len(tokens); i++ {
			if tokens[i] <= tokens[i-1] {
				w.Errorf("tokens %v, which must increase", tokens)
			}
		}
	})
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
