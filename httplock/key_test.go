package httplock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// keyOf answers with the key that the request holds, or "none".
func keyOf(c *gin.Context) {
	if lease, ok := core.FromContext(c.Request.Context()); ok {
		c.String(200, "%s", lease.Key())
		return
	}
	c.String(200, "none")
}

func TestKeys(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		scoped := with(w, m, WithScope("orders"))
		scopedOther := with(w, scoped, ByParam("order"))
		tenant := func(c *gin.Context) (string, error) {
			switch id := c.GetHeader("X-Tenant"); id {
			case "unknown":
				return "", errors.New("secret: no such tenant")
			default:
				return id, nil
			}
		}
		r := router()
		r.PUT("/orders/:id", m.Lock, keyOf)
		r.DELETE("/orders/:id", m.Lock, keyOf)
		r.GET("/orders/:id", m.Lock, keyOf)
		r.PUT("/users/:id", m.Lock, keyOf)
		r.POST("/orders/:id/items/:item", with(w, m, ByParam("id", "item")).Lock, keyOf)
		r.PUT("/files/*path", with(w, m, ByParam("path")).Lock, keyOf)
		r.PUT("/a/:id", scoped.Lock, keyOf)
		r.PUT("/b/:order", scopedOther.Lock, keyOf)
		r.PUT("/no-parameter", m.Lock, keyOf)
		r.PUT("/header", with(w, m, ByHeader("X-Order")).Lock, keyOf)
		r.PUT("/query", with(w, m, ByQuery("order")).Lock, keyOf)
		r.PUT("/function", with(w, m, ByFunc(func(c *gin.Context) (string, error) {
			if c.Query("fail") != "" {
				return "", errors.New("secret")
			}
			return c.Query("q"), nil
		})).Lock, keyOf)
		r.PUT("/tenant/:id", with(w, m, WithTenant(tenant)).Lock, keyOf)
		r.PUT("/locked-get/:id", with(w, m, WithSafeMethods(true)).Lock, keyOf)
		r.GET("/locked-get/:id", with(w, m, WithSafeMethods(true)).Lock, keyOf)
		r.NoRoute(m.Lock, keyOf)

		long := strings.Repeat("l", 600)
		for _, c := range []struct {
			request string
			header  []string
			want    string // a key, or a status and a kind
		}{
			{"PUT /orders/42", nil, routeKey("/orders/:id", "42")},
			{"DELETE /orders/42", nil, "10:http/route/4:shop/0:/11:/orders/:id/2:42"},
			{"GET /orders/42", nil, "none"},
			{"PUT /users/42", nil, routeKey("/users/:id", "42")},
			{"POST /orders/1/items/23", nil, routeKey("/orders/:id/items/:item", "1", "23")},
			{"POST /orders/12/items/3", nil, routeKey("/orders/:id/items/:item", "12", "3")},
			{"PUT /orders/a:b%20{}", nil, routeKey("/orders/:id", "a:b {}")},
			{"PUT /orders/%C3%A9", nil, routeKey("/orders/:id", "é")},
			{"PUT /orders/A", nil, routeKey("/orders/:id", "A")},
			{"PUT /orders/a%2Fb", nil, "none"}, // gin takes it for /orders/a/b, which is not found
			{"PUT /orders/a/b", nil, "none"},
			{"PUT /nowhere", nil, "none"},
			{"PUT /orders/", nil, "none"}, // gin: not found
			{"PUT /files/a/b", nil, routeKey("/files/*path", "/a/b")},
			{"PUT /a/7", nil, scopeKey("orders", "7")},
			{"PUT /b/7", nil, "10:http/scope/4:shop/0:/6:orders/1:7"},
			{"PUT /no-parameter", nil, "500 misconfigured"},
			{"PUT /header", []string{"X-Order", "9"}, routeKey("/header", "9")},
			{"PUT /header", nil, "400 key_missing"},
			{"PUT /header", []string{"X-Order", ""}, "400 key_missing"},
			{"PUT /header", []string{"X-Order", "1", "X-Order", "2"}, "400 key_missing"},
			{"PUT /query?order=9", nil, routeKey("/query", "9")},
			{"PUT /query?order=", nil, "400 key_missing"},
			{"PUT /query?order=1&order=2", nil, "400 key_missing"},
			{"PUT /function?q=z", nil, routeKey("/function", "z")},
			{"PUT /function", nil, "400 key_missing"},
			{"PUT /function?fail=1", nil, "400 key_missing"},
			{"PUT /tenant/1", []string{"X-Tenant", "acme"}, core.Key("http/route", service, "acme", "/tenant/:id", "1")},
			{"PUT /tenant/1", nil, "400 key_missing"},
			{"PUT /tenant/1", []string{"X-Tenant", "unknown"}, "400 key_missing"},
			{"GET /locked-get/1", nil, routeKey("/locked-get/:id", "1")},
			{"GET /locked-get/1", []string{"Upgrade", "websocket"}, "none"},
			{"GET /locked-get/1", []string{"Accept", "text/event-stream"}, "none"},
			// No header of a client makes a request that changes something go unlocked.
			{"PUT /locked-get/1", []string{"Upgrade", "websocket", "Accept", "text/event-stream"}, routeKey("/locked-get/:id", "1")},
			{"PUT /orders/" + long, nil, "sha256:"},
		} {
			method, path, _ := strings.Cut(c.request, " ")
			got := call(r, method, path, "", c.header...)
			have := got.body
			if got.status != 200 && got.status != 404 {
				have = fmt.Sprintf("%d %s", got.status, got.kind(w))
			}
			if strings.Contains(got.body, "secret") {
				w.Errorf("%s: %s", c.request, got.body)
			}
			if have != c.want && !(strings.HasSuffix(c.want, "sha256:") && strings.HasPrefix(have, c.want) && len(have) == len(c.want)+64) {
				w.Errorf("%s %v: %s, want %s", c.request, c.header, have, c.want)
			}
		}
	})
}

// With UseRawPath a slash can be part of a value, and is.
func TestRawPath(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		r := router()
		r.UseRawPath = true
		r.PUT("/orders/:id", m.Lock, keyOf)
		r.PUT("/empty/:id/end", m.Lock, keyOf)
		call(r, "PUT", "/orders/a%2Fb", "").ok(w, routeKey("/orders/:id", "a/b"))
		if got := call(r, "PUT", "/empty//end", ""); got.status == 200 {
			w.Errorf("an empty parameter made the key %s", got.body)
		}
	})
}

// No values make the key of other values, whatever is in them, nor one of another kind.
func TestKeysCannotBeForged(t *testing.T) {
	bubble(t, 1, func(w *world) {
		r := routesByHeader(w)
		seen := map[string]string{}
		add := func(path string, header ...string) {
			key, of := call(r, "PUT", path, "", header...).body, fmt.Sprintf("%s %q", path, header)
			if other, ok := seen[key]; ok || key == "none" || key == "" || len(key) > 512 {
				w.Errorf("%s and %s both make %q", other, of, key)
			}
			seen[key] = of
		}
		for _, values := range tuples(3, "0", "1:", ":", "0:", "1:a", "a", "2:0:", "sha256:", "/", "http/scope") {
			var header []string
			for i, v := range values {
				header = append(header, fmt.Sprint(i), v)
			}
			for _, kind := range kindsOfKeys[len(values)] {
				add(kind, header...)
			}
			if len(values) == 2 {
				add("/once", "0", values[0], "Idempotency-Key", values[1])
			}
		}
		for _, kind := range kindsOfKeys[1] {
			add(kind, "0", strings.Repeat("x", 600))
			add(kind, "0", strings.Repeat("x", 601))
		}
	})
}

// kindsOfKeys are routes by how many values their keys have, a tenant among them.
var kindsOfKeys = [][]string{1: {"/route1", "/scope1"}, 2: {"/route2", "/scope2", "/tenant2", "/both2"}, 3: {"/route3", "/scope3", "/tenant3", "/both3"}}

// routesByHeader answer with keys of the headers 0, 1 and 2.
func routesByHeader(w *world) *gin.Engine {
	tenant := WithTenant(func(c *gin.Context) (string, error) { return c.GetHeader("0"), nil })
	scope := WithScope("/scope/")
	m := middleware(w, w.locker, ByHeader("0"))
	r := router()
	r.PUT("/once", middleware(w, w.locker, tenant).Once, keyOf)
	headers := []string{"0", "1", "2"}
	for n := 1; n <= 3; n++ {
		all := with(w, m, ByHeader(headers[:n]...))
		r.PUT(fmt.Sprint("/route", n), all.Lock, keyOf)
		r.PUT(fmt.Sprint("/scope", n), with(w, all, scope).Lock, keyOf)
		if n > 1 {
			rest := with(w, m, ByHeader(headers[1:n]...), tenant)
			r.PUT(fmt.Sprint("/tenant", n), rest.Lock, keyOf)
			r.PUT(fmt.Sprint("/both", n), with(w, rest, scope).Lock, keyOf)
		}
	}
	return r
}

// tuples are all of 1 to most of the values.
func tuples(most int, values ...string) (all [][]string) {
	last := [][]string{nil}
	for range most {
		var next [][]string
		for _, t := range last {
			for _, v := range values {
				next = append(next, append(slices.Clip(t), v))
			}
		}
		all, last = append(all, next...), next
	}
	return all
}

// Nested Locks on one key take it once; on another they take that, too.
func TestNestedLocks(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithScope("orders"))
		other := with(w, m, WithScope("others"))
		r := router()
		group := r.Group("/orders/:id", m.Lock)
		group.PUT("", m.Lock, keyOf)
		group.PUT("/other", other.Lock, m.Lock, keyOf)
		call(r, "PUT", "/orders/1", "").ok(w, scopeKey("orders", "1"))
		call(r, "PUT", "/orders/1/other", "").ok(w, scopeKey("others", "1"))
		if n := w.events.count(EventNested); n != 2 {
			w.Errorf("%d nested", n)
		}
	})
}

// With a max hold, streams are locked as well.
func TestStreamsWithMaxHold(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithSafeMethods(true), WithMaxHold(time.Minute))
		r := router()
		r.GET("/orders/:id/events", m.Lock, func(c *gin.Context) {
			<-c.Request.Context().Done()
			c.String(200, "late")
		})
		start := time.Now()
		call(r, "GET", "/orders/1/events", "", "Accept", "text/event-stream").expect(w, 503, EventLost)
		if held := time.Since(start); held < time.Minute || held > time.Minute+10*time.Second {
			w.Errorf("held for %v", held)
		}
	})
}

func TestBadConfiguration(t *testing.T) {
	if _, err := New(nil, service, ByParam("id")); err == nil {
		t.Error("New without a Locker")
	}
	synctest.Test(t, func(t *testing.T) {
		locks := newLocker(t, testutil.NewNodes(t, 1))
		_, err := New(locks, "", nil, ByParam(), ByParam(""), ByHeader(), ByQuery(""), ByFunc[*gin.Context](nil), WithTenant[*gin.Context](nil), WithScope(""),
			WithMaxWait(-1), WithMaxHold(-1), WithMaxWaiters(0), WithMaxWaitersTotal(0), WithBodyLimit(-1), WithBuffer(-1),
			WithBusyStatus(200), WithReply(nil), WithHTTPReply(nil), WithRetention(0),
			WithMaxBodies(0), WithBodyTimeout(0), ByJSON(), ByJSON("a", ""), WithRecord(nil), WithRecordLimit(-1), WithReplayHeaders("ETag", "content-length"),
			ByParam(":order", "{item}", "{path...}"))
		if err == nil {
			t.Fatal("no error")
		}
		for _, want := range []string{"an option is nil", "the service's name is empty", "ByParam: no name", "ByParam: name is empty", "ByHeader: no name", "ByQuery: name is empty",
			"ByFunc: function is nil", "WithTenant: function is nil", "WithScope: scope is empty",
			"max wait is -1ns", "max hold is -1ns", "max waiters is 0", "max waiters in total is 0", "body limit is -1", "buffer is -1", "busy status is 200", "WithReply: function is nil", "WithHTTPReply: function is nil", "retention is 0s",
			`ByParam(":order"): give`, `ByParam("order")`, `ByParam("item")`, `ByParam("path")`,
			"max bodies is 0", "body timeout is 0s", "ByJSON: the path", "WithRecord: function is nil", "record limit is -1", "\"content-length\" belongs"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q:\n%v", want, err)
			}
		}
		if strings.Count(err.Error(), "retention") > 1 {
			t.Errorf("a fault is named twice:\n%v", err)
		}
		m, err := New(locks, service, ByParam("id"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.With(WithMaxWaitersTotal(7)); err == nil {
			t.Error("With changed the total")
		}
		if _, err := m.With(WithMaxBodies(7)); err == nil {
			t.Error("With changed the most bodies")
		}
	})
}

// Every reply can be replaced, and what replaces it has status and Retry-After already.
func TestReplyIsReplaceable(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var got Refusal
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(0), WithBusyStatus(http.StatusLocked),
			WithReply(func(c *gin.Context, r Refusal) { got = r }))
		plain := with(w, m, WithReply(func(c *gin.Context, r Refusal) { r.Write(c.Writer) }))
		g := newTurnstile()
		r := router()
		r.PUT("/orders/:id", m.Lock, g.handle)
		r.PUT("/header/:id", with(w, plain, ByHeader("X-Order"), WithScope("s")).Lock, g.handle)
		holder := background(func() reply { return call(r, "PUT", "/orders/1", "") })
		<-g.runs
		refused := call(r, "PUT", "/orders/1", "")
		if refused.status != 423 || refused.body != "" || refused.header.Get("Retry-After") == "" {
			w.Errorf("%+v", refused)
		}
		if got.Kind != EventBusy || got.Status != 423 || !errors.Is(got.Err, core.ErrHeld) {
			w.Errorf("%+v", got)
		}
		missing := call(r, "PUT", "/header/1", "")
		missing.expect(w, 400, EventKeyMissing)
		if !strings.Contains(missing.body, "lacks the header X-Order") {
			w.Errorf("the reply does not say what is missing: %s", missing.body)
		}
		g.goOn <- struct{}{}
		holder().ok(w, "done")
	})
}

// A refusal of what a client sent says what is wrong with it.
func TestRepliesSayWhatIsWrong(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByJSON("order", "id"), WithBodyLimit(100))
		r := router()
		r.POST("/orders", m.Once, m.Lock, text("done"))
		r.POST("/limited", func(c *gin.Context) { c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 10) }, m.Lock, text("done"))
		large := `{"order":{"id":1},"more":"` + strings.Repeat("x", 100) + `"}`
		call(r, "POST", "/orders", `{"order":{"id":1}}`, "Idempotency-Key", "k")
		for _, c := range []struct{ path, body, key, want string }{
			{"/orders", `{"order":{}}`, "", "The field order.id of the body does not name the resource: it is missing."},
			{"/orders", ``, "", "it is missing: the document is empty"},
			{"/orders", `{"order":{"id":{}}}`, "", "it must be a string, a number or a boolean, and not empty, but is {}."},
			{"/orders", large, "", "no more than 100 bytes"},
			{"/orders", large, "k2", "With an Idempotency-Key, the body must have no more than 100 bytes"},
			{"/limited", `{"order":{"id":1}}`, "", "no more than 10 bytes"},
			{"/orders", `{"order":{"id":2}}`, "k", "another path, query or body, or another sender"},
		} {
			header := []string{"Idempotency-Key", c.key}
			if c.key == "" {
				header = nil
			}
			got := call(r, "POST", c.path, c.body, header...)
			var problem struct{ Detail string }
			if err := json.Unmarshal([]byte(got.body), &problem); err != nil || !strings.Contains(problem.Detail, c.want) {
				w.Errorf("%s %s: %d %s, want %s", c.path, c.body, got.status, got.body, c.want)
			}
		}
	})
}

// What the middleware sends names neither the key nor who holds it.
func TestRepliesLeakNothing(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var names []string
		locker := w.replica(core.WithObserver(core.Observer{Event: func(_ context.Context, e core.Event) { names = append(names, e.Name) }}))
		m := middleware(w, locker, ByParam("id"), WithMaxWait(0))
		g := newTurnstile()
		r := router()
		r.PUT("/orders/:id", m.Lock, g.handle)
		holder := background(func() reply { return call(r, "PUT", "/orders/secret42", "") })
		<-g.runs
		refused := call(r, "PUT", "/orders/secret42", "")
		if all := fmt.Sprint(refused); strings.Contains(all, "secret42") || strings.Contains(all, "orders") || strings.Contains(all, "embedded") {
			w.Errorf("%s", all)
		}
		g.goOn <- struct{}{}
		holder().ok(w, "done")
		if !slices.Equal(names, []string{"/orders/:id"}) {
			w.Errorf("events under the names %q, which must be templates", names)
		}
	})
}

// Retry-After has whole seconds, and never says at once where there is something to wait for.
func TestRetryAfterRoundsUp(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "}", 1: `"retry_after":1}`, time.Second: `"retry_after":1}`, time.Second + 1: `"retry_after":2}`, 9500 * time.Millisecond: `"retry_after":10}`} {
		r := router()
		r.PUT("/", func(c *gin.Context) { Refusal{Status: 409, RetryAfter: d}.Write(c.Writer) })
		got := call(r, "PUT", "/", "").body
		if !strings.HasSuffix(got, want) || strings.Contains(got, "retry_after") != (d > 0) {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
