package httplock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// wantKeys sends requests ("METHOD path"), and compares the responses: a key, or the status and kind of a refusal.
func wantKeys(w *world, h http.Handler, want map[string]string, header ...string) {
	w.Helper()
	for request, want := range want {
		method, path, _ := strings.Cut(request, " ")
		got := call(h, method, path, `{"id":1}`, header...)
		have := got.body
		if got.status != 200 && got.status != 404 {
			have = fmt.Sprintf("%d %s", got.status, got.kind(w))
		}
		if strings.Contains(got.body, "secret") {
			w.Errorf("%s: %s", request, got.body)
		}
		if have != want {
			w.Errorf("%s %v: %s, want %s", request, header, have, want)
		}
	}
}

// query is a function for options. It returns a parameter of the query.
func query(r *http.Request) (string, error) {
	if r.URL.Query().Get("fail") != "" {
		return "", errors.New("secret")
	}
	return r.URL.Query().Get("q"), nil
}

// order is a function for ByKey. It returns the key of an order.
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

func TestKeys(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		long := strings.Repeat("l", 600)
		r := router()
		answer := gin.WrapF(keyOf)
		r.Any("/orders/:id", m.Lock, answer)
		r.PUT("/users/:id", m.Lock, answer)
		r.POST("/orders/:id/items/:item", with(m, ByParam("id", "item")).Lock, answer)
		r.PUT("/files/*path", with(m, ByParam("path")).Lock, answer)
		r.PUT("/no-parameter", m.Lock, answer)
		r.PUT("/function", with(m, ByFunc(query)).Lock, answer)
		r.PUT("/json", with(m, ByJSON("id")).Lock, answer)
		r.PUT("/both/:id", with(m, ByParam("id"), ByJSON("id")).Lock, answer)
		r.PUT("/tenant/:id", with(m, WithTenant(query)).Lock, answer)

		shared := with(m, ByKey(order))
		r.PUT("/shared/:id", with(shared, WithMaxWait(0)).Lock, answer)
		r.PUT("/parts/:id", with(shared, ByParam("id")).Lock, answer)
		r.PUT("/again/:id", with(with(shared, ByParam("id")), ByKey(order)).Lock, answer)
		r.NoRoute(m.Lock, answer)

		wantKeys(w, r, map[string]string{
			"PUT /orders/42":          routeKey("/orders/:id", "42"),
			"DELETE /orders/42":       "10:http/route/4:shop/0:/11:/orders/:id/2:42",
			"GET /orders/42":          "none",
			"PUT /users/42":           routeKey("/users/:id", "42"),
			"POST /orders/1/items/23": routeKey("/orders/:id/items/:item", "1", "23"),
			"POST /orders/12/items/3": routeKey("/orders/:id/items/:item", "12", "3"),
			"PUT /orders/a:b%20{}":    routeKey("/orders/:id", "a:b {}"),
			"PUT /orders/%C3%A9":      routeKey("/orders/:id", "é"),
			"PUT /orders/A":           routeKey("/orders/:id", "A"),
			"PUT /orders/a%2Fb":       "500 misconfigured", // gin takes it for /orders/a/b, which is not found
			"PUT /nowhere":            "500 misconfigured",
			"GET /nowhere":            "none",
			"PUT /orders/":            "500 misconfigured", // gin: not found
			"PUT /files/a/b":          routeKey("/files/*path", "/a/b"),
			"PUT /files/":             routeKey("/files/*path", "/"),
			"PUT /no-parameter":       "500 misconfigured",
			"PUT /function?q=z":       routeKey("/function", "z"),
			"PUT /function":           "400 key_missing",
			"PUT /function?fail=1":    "400 key_missing",
			"PUT /json":               routeKey("/json", "1"),
			"PUT /both/2":             routeKey("/both/:id", "2", "1"),
			"PUT /tenant/1?q=acme":    core.Key("http/route", service, "acme", "/tenant/:id", "1"),
			"PUT /tenant/1":           "400 key_missing",
			"PUT /shared/42":          core.Key("order", "42"),
			"PUT /again/42":           core.Key("order", "42"),
			"PUT /shared/none":        "400 key_missing",
			"PUT /shared/secret":      "400 key_missing",
			"PUT /parts/42":           routeKey("/parts/:id", "42"),
			"PUT /tenant/1?fail=1":    "400 key_missing",
			"PUT /orders/" + long:     routeKey("/orders/:id", long),
		})

		for _, header := range [][]string{{"Upgrade", "websocket"}, {"Upgrade", "h2c"}, {"Accept", "text/event-stream"}, {"X-Http-Method-Override", "GET"}} {
			wantKeys(w, r, map[string]string{"PUT /orders/1": routeKey("/orders/:id", "1"), "GET /orders/1": "none", "OPTIONS /orders/1": "none"}, header...)
		}
	})
}

func TestKeysOfPatterns(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		answer := http.HandlerFunc(keyOf)
		mux := http.NewServeMux()
		for pattern, opts := range map[string][]Option{
			"PUT /orders/{id}": nil, "DELETE /orders/{id}": nil, "GET /orders/{id}": nil, "PATCH  example.com/hosts/{id}": nil,
			"/files/{id...}": nil, "/both/{x}/{id...}": nil, "/exact/{id}/{$}": nil, "/none/{x}": nil,
			"/json": {ByJSON("id")}, "/request/{id}": {ByKey(func(r *http.Request) (string, error) { return core.Key("order", r.PathValue("id")), nil })},
			"/wild/{path...}": {ByParam("path")},
		} {
			mux.Handle(pattern, with(m, opts...).LockHandler(answer))
		}

		wantKeys(w, mux, map[string]string{
			"PUT /orders/42":                   routeKey("/orders/{id}", "42"),
			"DELETE /orders/42":                routeKey("/orders/{id}", "42"),
			"GET /orders/42":                   "none",
			"PUT /orders/a%2Fb":                routeKey("/orders/{id}", "a/b"),
			"PATCH http://example.com/hosts/1": routeKey("example.com/hosts/{id}", "1"),
			"PUT /both/a/":                     "400 key_missing",
			"PUT /files/a/b":                   routeKey("/files/{id...}", "a/b"),
			"PUT /files/":                      "400 key_missing",
			"PUT /exact/1/":                    routeKey("/exact/{id}/{$}", "1"),
			"PUT /none/1":                      "500 misconfigured",
			"PUT /json":                        routeKey("/json", "1"),
			"PUT /request/1":                   core.Key("order", "1"),
			"PUT /wild/a":                      routeKey("/wild/{path...}", "a"),
		})

		// A router may set the pattern and the path values itself.
		other := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Pattern = "/orders/:id"
			r.SetPathValue("id", "7")
			m.LockHandler(answer).ServeHTTP(w, r)
		})
		wantKeys(w, other, map[string]string{"PUT /orders/7": routeKey("/orders/:id", "7")})
		wantKeys(w, m.LockHandler(mux), map[string]string{"PUT /orders/42": "500 misconfigured", "GET /orders/42": "none"})
	})
}

// With UseRawPath, the value of a parameter may contain a slash.
func TestRawPath(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		r := router()
		r.UseRawPath = true
		r.PUT("/orders/:id", m.Lock, gin.WrapF(keyOf))
		r.PUT("/empty/:id/end", m.Lock, gin.WrapF(keyOf))
		call(r, "PUT", "/orders/a%2Fb", "").ok(w, routeKey("/orders/:id", "a/b"))
		if got := call(r, "PUT", "/empty//end", ""); got.status == 200 {
			w.Errorf("an empty parameter made the key %s", got.body)
		}
	})
}

func TestBadConfiguration(t *testing.T) {
	if _, err := New(nil, service, ByParam("id")); err == nil {
		t.Error("New without a Locker")
	}
	synctest.Test(t, func(t *testing.T) {
		locks := newReplica(t, testutil.NewNodes(t, 1)).Locker
		_, err := New(locks, "", nil, ByParam(), ByParam(""), ByFunc(nil), WithTenant(nil), ByKey(nil), WithMaxWait(-1), WithMaxWaiters(0),
			WithBodyLimit(-1), WithMemory(-2), WithReply(nil), WithRetention(0), ByJSON(), ByJSON("a", ""), ByParam(":order", "{path...}"), WithIdempotency(true, nil))

		for _, want := range []string{"an option is nil", "the service name is empty", "ByParam: no name", `ByParam("")`,
			"ByFunc: the function is nil", "WithTenant: the function is nil", "ByKey: the function is nil", "ByKey makes all",
			"a max wait of -1ns", "max waiters is 0", "a body limit of -1", "a memory of -2", "WithReply: the function is nil", "a retention of 0s",
			`ByParam(":order"): give`, `ByParam("order")`, `ByParam("path")`, "ByJSON: the path",
			"WithIdempotency: nothing names the sender"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q:\n%v", want, err)
			}
		}
		if err != nil && strings.Count(err.Error(), "retention") > 1 {
			t.Errorf("a fault is named twice:\n%v", err)
		}

		if _, err := New(locks, service); err == nil || !strings.Contains(err.Error(), "nothing makes a key") {
			t.Errorf("without a key: %v", err)
		}
	})
}

// WithReply replaces refusals. Its function finds the status and Retry-After set, and can get gin's context. Neither a
// refusal nor an event names the key or its holder.
func TestReplies(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var got Refusal
		var names []string
		locker := w.replica(core.WithObserver(core.Observer{Event: func(_ context.Context, e core.Event) { names = append(names, e.Name) }}))

		plain := middleware(w, locker, ByParam("id"), WithMaxWait(0))
		own := with(plain, WithReply(func(to http.ResponseWriter, r *http.Request, refusal Refusal) {
			got = refusal
			if c, ok := GinContext(r); ok && c.Query("json") != "" {
				c.JSON(http.StatusLocked, gin.H{"route": c.FullPath()})
			}
		}))

		r := router()
		r.PUT("/orders/:id", func(c *gin.Context) {
			if c.Query("own") != "" {
				own.Lock(c)
			} else {
				plain.Lock(c)
			}
		})
		r.PUT("/json", with(plain, ByJSON("id")).Lock)

		lease := must(w.locker.Acquire(w.Context(), routeKey("/orders/:id", "secret42")))
		refused := call(r, "PUT", "/orders/secret42", "")
		if all := fmt.Sprint(refused); strings.Contains(all, "secret42") || strings.Contains(all, "orders") || strings.Contains(all, "embedded") {
			w.Errorf("%s", all)
		}
		// Retry-After has the TTL and the difference of the clocks, rounded up.
		if refused := call(r, "PUT", "/orders/secret42?own=1", ""); refused.status != 409 || refused.body != "" || refused.header.Get("Retry-After") != "11" {
			w.Errorf("%+v", refused)
		}

		if got.Kind != EventBusy || got.Status != 409 || !errors.Is(got.Err, core.ErrHeld) {
			w.Errorf("%+v", got)
		}
		if got := call(r, "PUT", "/orders/secret42?own=1&json=1", ""); got.status != 423 || got.body != `{"route":"/orders/:id"}` {
			w.Errorf("%+v", got)
		}

		lease.Release(w.Context())

		if missing := call(r, "PUT", "/json", "{}"); !strings.Contains(missing.body, "The field id of the body") {
			w.Errorf("the reply does not say what is missing: %s", missing.body)
		}

		if names = slices.Compact(names); !slices.Equal(names, []string{"/orders/:id", "/json"}) {
			w.Errorf("events under the names %q, which must be templates", names)
		}
	})
}

// The function of an option may read the body or a form. The handler still gets the whole body.
func TestKeysOfTheBody(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithBodyLimit(100), ByFunc(func(r *http.Request) (string, error) {
			b, err := io.ReadAll(r.Body)
			return string(b), err
		}))
		form := with(m, ByFunc(func(r *http.Request) (string, error) {
			c, _ := GinContext(r)
			return c.PostForm("id"), nil
		}))

		handle := func(c *gin.Context) { b, err := io.ReadAll(c.Request.Body); c.String(200, "%s %v", b, err) }
		r := router()
		r.POST("/body", m.Lock, handle)
		r.POST("/both", with(m, WithTenant(func(r *http.Request) (string, error) { return "acme", r.ParseForm() }), ByJSON("id")).Lock, handle)
		r.POST("/form", form.Lock, func(c *gin.Context) { c.String(200, c.PostForm("more")) })

		call(r, "POST", "/body", "body").ok(w, "body <nil>")
		call(r, "POST", "/body", "").expect(w, 400, EventKeyMissing)
		call(r, "POST", "/both", `{"id":1}`, "Content-Type", "application/x-www-form-urlencoded").ok(w, `{"id":1} <nil>`)
		call(r, "POST", "/form", "id=1&more=2", "Content-Type", "application/x-www-form-urlencoded").ok(w, "2")
		call(r, "POST", "/form", strings.Repeat("x", 101), "Content-Type", "application/x-www-form-urlencoded").expect(w, 413, EventBodyTooLarge)
	})
}

// The largest possible limits work.
func TestLargestLimits(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithBodyLimit(math.MaxInt), WithMemory(math.MaxInt), WithMaxWait(math.MaxInt64), WithMaxWaiters(1))
		g := newTurnstile()
		r := router()
		r.PUT("/orders/:id", m.Lock, g.handle)
		r.PUT("/echo/:id", m.Lock, func(c *gin.Context) { b, _ := c.GetRawData(); c.String(200, "%s", b) })
		call(r, "PUT", "/echo/1", "body").ok(w, "body")
		r.PUT("/many/:id", middleware(w, w.locker, ByParam("id"), WithMaxWaiters(math.MaxInt)).Lock, text("ran"))
		call(r, "PUT", "/many/1", "").ok(w, "ran")

		put := func() func() reply { return background(func() reply { return call(r, "PUT", "/orders/1", "body") }) }
		all := []func() reply{put()}
		<-g.runs
		all = append(all, put())
		synctest.Wait()

		full := call(r, "PUT", "/orders/1", "body")
		if full.expect(w, 429, EventQueueFull); full.header.Get("Retry-After") != "1" {
			w.Errorf("Retry-After %q", full.header.Get("Retry-After"))
		}

		for _, done := range all {
			g.goOn <- struct{}{}
			done().ok(w, "done")
		}
	})
}

// If core refuses a key of ByKey, that is a fault of the program, and not of the request.
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
