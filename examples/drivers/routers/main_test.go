package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/testutil"
)

// ways are handlers, and the status that a client gets. If the status is 0, the connection breaks. Over HTTP/1.0
// nothing is streamed.
var ways = map[string]struct {
	handle  http.HandlerFunc
	status  int
	status0 int // over HTTP/1.0
}{
	"whole": {func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "done") }, 200, 200},
	"streamed": {func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "do")
		flush(w)
		io.WriteString(w, "ne")
	}, 200, 200},
	"lost": {func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "done"); lose(r) }, 503, 503},
	"lost in a stream": {func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "done")
		flush(w)
		lose(r)
	}, 0, 503},
	"panic after a loss": {func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "done")
		flush(w)
		lose(r)
		panic(http.ErrAbortHandler)
	}, 0, 0},
}

func flush(w http.ResponseWriter) { http.NewResponseController(w).Flush() }

// lose ends the lease under which the handler runs.
func lose(r *http.Request) {
	lease, _ := core.FromContext(r.Context())
	lease.Extend(1)
	<-lease.Context().Done()
}

// newMiddleware returns a middleware on a new node, with the options of its Locker.
func newMiddleware(t *testing.T, opts ...core.Option) *httplock.Middleware {
	t.Helper()
	node := testutil.StartNode()
	t.Cleanup(func() { node.Close() })
	locker, err := core.New([]redis.UniversalClient{node.Client()}, append(opts, core.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}

	m, err := httplock.New(locker, "orders", httplock.ByParam("id"), httplock.WithIdempotency(false, httplock.NoSender))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()); locker.Close(context.Background()) })
	return m
}

// Behind chi and echo, over HTTP/1.0, 1.1 and 2, an answer is the same as behind net/http. A request does not succeed
// if its handler loses its lease.
func TestAnswers(t *testing.T) {
	m := newMiddleware(t, core.MaxHold(time.Minute))
	for name, router := range map[string]router{"chi": withChi, "echo": withEcho} {
		for way, c := range ways {
			s := httptest.NewUnstartedServer(router(m, c.handle, c.handle))
			s.EnableHTTP2, s.Config.ErrorLog = true, slog.NewLogLogger(slog.DiscardHandler, 0)
			s.StartTLS()
			for _, protocol := range []string{"HTTP/1.0", "HTTP/1.1", "HTTP/2.0"} {
				want := c.status
				if protocol == "HTTP/1.0" {
					want = c.status0
				}
				if status, body := ask(s, protocol); status != want || status == 200 && body != "done" {
					t.Errorf("%s, %s, %s: %d %q, want %d", name, way, protocol, status, body, want)
				}
			}
			s.Close()
		}
	}
}

// The error that a handler of echo returns is its response: the client gets it, it is recorded, and the key is free. After
// a panic, Recover responds.
func TestErrorsOfEcho(t *testing.T) {
	m := newMiddleware(t)

	panics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("of a handler") })
	h := withEcho(m, panics, panics)
	h.(*echo.Echo).Use(middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true, DisableStackAll: true}))
	h.(*echo.Echo).Logger.SetOutput(io.Discard)
	afterPanic := httptest.NewRecorder()
	h.ServeHTTP(afterPanic, httptest.NewRequest("PUT", "/orders/1", nil))
	if afterPanic.Code != http.StatusInternalServerError {
		t.Errorf("a panic: %d %s", afterPanic.Code, afterPanic.Body)
	}

	for i, key := range []string{"", "k", "k"} {
		req := httptest.NewRequest("POST", "/orders/1/refunds", nil)
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		replayed := w.Header().Get("Idempotent-Replayed") == "true"
		if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "refunded before") || replayed != (i == 2) {
			t.Errorf("request %d: %d %s, replayed %v", i+1, w.Code, w.Body, replayed)
		}
	}
}

// ask sends a request, and returns the status and the body of a complete answer. If the connection breaks, the status
// is 0.
func ask(s *httptest.Server, protocol string) (status int, body string) {
	req, _ := http.NewRequest("PUT", s.URL+"/orders/1", nil)
	var res *http.Response
	var err error
	if protocol == "HTTP/2.0" {
		res, err = s.Client().Do(req)
	} else {
		var conn net.Conn
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		if conn, err = tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "example.com"}); err != nil {
			return -1, err.Error()
		}
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /orders/1 %s\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", protocol)
		res, err = http.ReadResponse(bufio.NewReader(conn), req)
	}
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, ""
	}
	return res.StatusCode, string(b)
}
