package httplock

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

// The template of a pattern is the whole pattern without its method. A blank alone does not mean that there is a
// method.
func TestTemplates(t *testing.T) {
	for pattern, want := range map[string]struct {
		template string
		names    []string
	}{
		"/orders/{id}":                    {"/orders/{id}", []string{"id"}},
		"PUT /orders/{id}":                {"/orders/{id}", []string{"id"}},
		"PUT \t example.com/orders/{id}":  {"example.com/orders/{id}", []string{"id"}},
		"/my orders/{id}":                 {"/my orders/{id}", []string{"id"}},
		"/orders of/{id}/all of them":     {"/orders of/{id}/all of them", []string{"id"}},
		"example.com/my orders/{id}":      {"example.com/my orders/{id}", []string{"id"}},
		"/files/{path...}":                {"/files/{path...}", []string{"path"}},
		"/exact/{id}/{$}":                 {"/exact/{id}/{$}", []string{"id"}},
		"/x/{id:[0-9]{3}}/{name:[a-z/]+}": {"/x/{id:[0-9]{3}}/{name:[a-z/]+}", []string{"id", "name"}},
		"/x/{a}-{b}":                      {"/x/{a}-{b}", []string{"a", "b"}},
		"/orders/*":                       {"/orders/*", []string{"*"}},
		"/orders/{id}/*":                  {"/orders/{id}/*", []string{"id", "*"}},
		"/static*":                        {"/static*", []string{"*"}},
		"/orders/:id/items/:item":         {"/orders/:id/items/:item", []string{"id", "item"}},
		"/files/*path":                    {"/files/*path", []string{"path"}},
		"/pay-:id/:item":                  {"/pay-:id/:item", []string{"id", "item"}},
		"/at/10:30":                       {"/at/10:30", []string{"30"}}, // without a value
		"/x:{id}":                         {"/x:{id}", []string{"id"}},
		"/x/{id}:{verb}":                  {"/x/{id}:{verb}", []string{"id", "verb"}},
		"/x/:{id}":                        {"/x/:{id}", []string{"id"}},
		"/open/{id":                       {"/open/{id", []string{"id"}},
		"":                                {"", nil},
	} {
		template := stripMethod(pattern)
		if names := parameterNames(template); template != want.template || !slices.Equal(names, want.names) {
			t.Errorf("%q: %q, %q", pattern, template, names)
		}
	}
}

// A request without a route in gin is refused if a handler would run under Lock. If there is no such handler, the
// request gets the 404 or 405 of gin.
func TestNoRouteIsNoAbsence(t *testing.T) {
	bubble(t, 1, func(w *world) {
		runs := 0
		ran := func(c *gin.Context) { runs++; c.String(200, "ran") }
		for name, m := range map[string]*Middleware{"once": middleware(w, w.locker, WithIdempotency(true, NoSender)), "by": middleware(w, w.locker, ByParam("id"))} {
			proxy, used, locked := router(), router(), router()
			proxy.HandleMethodNotAllowed = true
			proxy.GET("/read", ran)
			proxy.NoRoute(m.Lock, ran, m.Lock)
			proxy.NoMethod(m.Lock, ran)
			used.HandleMethodNotAllowed = true
			used.Use(m.Lock)
			used.POST("/orders/:id", ran)
			locked.Use(m.Lock)
			locked.NoRoute(ran)

			for range 2 {
				for h, paths := range map[*gin.Engine][]string{proxy: {"/anything", "/read"}, locked: {"/anything"}} {
					for _, path := range paths {
						got := call(h, "POST", path, "", "Idempotency-Key", "k")
						if got.expect(w, 500, EventMisconfigured); !strings.Contains(got.body, "NoRoute") {
							w.Errorf("%s: %s", name, got.body)
						}
					}
				}
			}

			if runs != 0 {
				w.Errorf("%s: %d runs", name, runs)
			}
			call(proxy, "GET", "/anything", "").ok(w, "ran")

			runs = 0
			if got := call(used, "POST", "/anything", "", "Idempotency-Key", "k"); got.status != 404 {
				w.Errorf("%s: %+v", name, got)
			}
			if got := call(used, "PUT", "/orders/1", "", "Idempotency-Key", "k"); got.status != 405 {
				w.Errorf("%s: %+v", name, got)
			}
			call(used, "POST", "/orders/1", "", "Idempotency-Key", "k").ok(w, "ran")
			runs = 0
		}
	})
}

// A router such as chi or echo passes its route in the pattern and the path values of the request.
func TestOtherRouters(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("*"))
		serve := func(m *Middleware, pattern string, values ...string) reply {
			req := newRequest("PUT", "/x")
			req.Pattern = pattern
			for i := 0; i < len(values); i += 2 {
				req.SetPathValue(values[i], values[i+1])
			}
			return serveWith(m.LockHandler(http.HandlerFunc(keyOf)), req)
		}

		serve(m, "/files/*", "*", "a/b").ok(w, routeKey("/files/*", "a/b"))
		serve(m, "/files/*", "*", "").expect(w, 400, EventKeyMissing)
		serve(m, "/my files/*", "*", "a").ok(w, routeKey("/my files/*", "a"))

		byID := with(m, ByParam("id"))
		for _, pattern := range []string{"/orders/*", "/orders/{identity}", "/orders"} {
			got := serve(byID, pattern, "*", "1", "identity", "1")
			if got.expect(w, 500, EventMisconfigured); !strings.Contains(got.body, "Put the middleware at the route") {
				w.Errorf("%s: %s", pattern, got.body)
			}
		}
		serve(byID, "/orders/{id}", "id", "").expect(w, 400, EventKeyMissing)
	})
}

// If two parameters of a route have the same name, the value of one of them is not known: chi's path values have the last
// one. A key that needs the parameters is refused.
func TestParametersOfOneName(t *testing.T) {
	bubble(t, 1, func(w *world) {
		const pattern = "/tenants/{id}/orders/{id}"
		whole := ByKey(func(*http.Request) (string, error) { return "order/5", nil })
		serve := func(opts ...Option) reply {
			req := newRequest("PUT", "/tenants/1/orders/5")
			req.Header.Set("Idempotency-Key", "k")
			req.Pattern = pattern
			req.SetPathValue("id", "1")
			req.SetPathValue("id", "5")
			return serveWith(middleware(w, w.locker, opts...).LockHandler(http.HandlerFunc(keyOf)), req)
		}

		for name, opts := range map[string][]Option{
			"ByParam":         {ByParam("id")},
			"WithIdempotency": {WithIdempotency(false, NoSender), whole},
		} {
			if got := serve(opts...); got.status != 500 || !strings.Contains(got.body, "a name of its own") {
				w.Errorf("%s: %+v", name, got)
			}
		}
		serve(whole).ok(w, "order/5")
	})
}

// The parameters of a route are part of the identity, with gin and with net/http. Two requests for two accounts with
// the same Idempotency-Key both run.
func TestParametersAreOfTheIdentity(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		gins, std := router(), http.NewServeMux()

		gins.POST("/accounts/:id/files/*path", m.Lock, func(c *gin.Context) { c.String(200, c.Request.URL.Path) })
		std.Handle("POST /accounts/{id}/files/{path...}", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, r.URL.Path) })))

		for _, h := range []http.Handler{gins, std} {
			for range 2 {
				for _, path := range []string{"/accounts/1/files/a", "/accounts/2/files/a", "/accounts/1/files/b"} {
					call(h, "POST", path, "", "Idempotency-Key", "k").ok(w, path)
				}
			}
		}
	})
}
