// Routers shows httplock on chi and echo: orders that one request at a time changes, and payments that are made once.
//
//	make demo-routers
//
// The exit status is 0 if, on both, a request that came while another was at work was told so, and a payment that was
// asked for twice was made once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/testutil"
)

func main() {
	if err := demo(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "routers:", err)
		os.Exit(1)
	}
}

// A router makes the routes of a shop.
type router func(m *httplock.Middleware, update, pay http.Handler) http.Handler

// withChi has the middleware inline, after the router has found the route: chi then has set pattern and path values.
func withChi(m *httplock.Middleware, update, pay http.Handler) http.Handler {
	r := chi.NewRouter()
	r.With(m.LockHandler).Method("PUT", "/orders/{id}", update)
	r.With(m.LockHandler).Method("POST", "/orders/{id}/payments", pay)
	return r
}

// withEcho tells net/http what echo knows of the route, and runs echo's handlers inside the middleware.
func withEcho(m *httplock.Middleware, update, pay http.Handler) http.Handler {
	e := echo.New()
	route := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			r.Pattern = c.Path()
			for _, name := range c.ParamNames() {
				r.SetPathValue(name, c.Param(name))
			}

			// echo.WrapMiddleware leaves the response of the handlers in c. Middlewares further out have their own, for
			// instance Recover after a panic.
			outer := c.Response()
			defer func() { c.SetResponse(outer) }()
			return next(c)
		}
	}
	lock := echo.WrapMiddleware(m.LockHandler)
	e.PUT("/orders/:id", echo.WrapHandler(update), route, lock, respondToErrors)
	e.POST("/orders/:id/payments", echo.WrapHandler(pay), route, lock, respondToErrors)
	e.POST("/orders/:id/refunds", refuseRefund, route, lock, respondToErrors)
	return e
}

// respondToErrors responds to the errors of handlers, inside the middleware. By itself, echo responds to them after the
// middleware, which has sent and recorded an empty response by then.
func respondToErrors(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := next(c); err != nil {
			c.Error(err)
		}
		return nil
	}
}

// refuseRefund fails as handlers of echo do.
func refuseRefund(echo.Context) error {
	return echo.NewHTTPError(http.StatusConflict, "the order was refunded before")
}

func demo(ctx context.Context, out io.Writer) (err error) {
	node := testutil.StartNode()
	defer node.Close()
	locker, err := core.New([]redis.UniversalClient{node.Client()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close(ctx)) }()
	m, err := httplock.New(locker, "orders", httplock.ByParam("id"), httplock.WithIdempotency(false, httplock.NoSender), httplock.WithMaxWait(0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close(ctx)) }()
	for name, router := range map[string]router{"chi": withChi, "echo": withEcho} {
		if err := try(out, name, m, router); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// try sends two updates of one order at a time, and one payment twice.
func try(out io.Writer, name string, m *httplock.Middleware, router router) error {
	atWork, goOn := make(chan struct{}), make(chan struct{})
	var payments atomic.Int32
	r := router(m, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(atWork)
		<-goOn
		lease, _ := core.FromContext(r.Context())
		fmt.Fprintf(w, "updated order %s, with a fencing token: %v", r.PathValue("id"), lease.FencingToken() > 0)
	}), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", payments.Add(1))
	}))
	send := func(method, path, key string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(method, path, nil)
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		fmt.Fprintf(out, "%s: %s %s: %d %s\n", name, method, path, w.Code, w.Body)
		return w
	}
	first := make(chan int, 1)
	go func() { first <- send("PUT", "/orders/42", "").Code }()
	select {
	case <-atWork:
	case got := <-first:
		return fmt.Errorf("the first update did not run, and was answered with %d", got)
	}
	second := send("PUT", "/orders/42", "").Code
	close(goOn)
	if got := <-first; got != http.StatusOK || second != http.StatusConflict {
		return fmt.Errorf("the two updates were answered with %d and %d", got, second)
	}
	for range 2 {
		if w := send("POST", "/orders/42/payments", name); w.Code != http.StatusCreated || w.Body.String() != "payment 1" {
			return fmt.Errorf("a payment was answered with %d %s", w.Code, w.Body)
		}
	}
	return nil
}
