package httplock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// keyOfRequest answers with the key that the request holds, or "none".
func keyOfRequest(w http.ResponseWriter, r *http.Request) {
	if lease, ok := core.FromContext(r.Context()); ok {
		fmt.Fprint(w, lease.Key())
		return
	}
	fmt.Fprint(w, "none")
}

func TestKeysOfPatterns(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		handler := http.HandlerFunc(keyOfRequest)
		mux := http.NewServeMux()
		mux.Handle("PUT /orders/{id}", m.LockHandler(handler))
		mux.Handle("DELETE /orders/{id}", m.LockHandler(handler))
		mux.Handle("GET /orders/{id}", m.LockHandler(handler))
		mux.Handle("PATCH  example.com/hosts/{id}", m.LockHandler(handler))
		mux.Handle("/files/{id...}", m.LockHandler(handler))
		mux.Handle("/both/{idx}/{id...}", m.LockHandler(handler))
		mux.Handle("/exact/{id}/{$}", m.LockHandler(handler))
		mux.Handle("/none/{idx}", m.LockHandler(handler))
		mux.Handle("/scoped/{id}", with(w, m, WithScope("orders")).LockHandler(handler))
		mux.Handle("/json", with(w, m, ByJSON("id")).LockHandler(handler))
		mux.Handle("/query", with(w, m, ByQuery("id")).LockHandler(handler))
		mux.Handle("/request/{id}", with(w, m, ByKey(func(r *http.Request) (string, error) { return core.Key("order", r.PathValue("id")), nil })).LockHandler(handler))
		mux.Handle("/gin/{id}", with(w, m, ByKey(order)).LockHandler(handler))
		mux.Handle("/wild/{path...}", with(w, m, ByParam("path")).LockHandler(handler))
		mux.Handle("/no-key/{id}", middleware(w, w.locker).LockHandler(handler))
		around := m.LockHandler(mux)
		for _, c := range []struct {
			h       http.Handler
			request string
			want    string // a key, or a status and a kind
		}{
			{mux, "PUT /orders/42", routeKey("/orders/{id}", "42")},
			{mux, "DELETE /orders/42", routeKey("/orders/{id}", "42")},
			{mux, "GET /orders/42", "none"},
			{mux, "PUT /orders/a%2Fb", routeKey("/orders/{id}", "a/b")},
			{mux, "PATCH http://example.com/hosts/1", routeKey("example.com/hosts/{id}", "1")},
			{mux, "PUT /both/a/", "400 key_missing"},
			{mux, "PUT /files/a/b", routeKey("/files/{id...}", "a/b")},
			{mux, "PUT /files/", "400 key_missing"},
			{mux, "PUT /exact/1/", routeKey("/exact/{id}/{$}", "1")},
			{mux, "PUT /none/1", "500 misconfigured"},
			{mux, "PUT /scoped/1", scopeKey("orders", "1")},
			{mux, "PUT /json", routeKey("/json", "1")},
			{mux, "PUT /query?id=1", routeKey("/query", "1")},
			{mux, "PUT /query", "400 key_missing"},
			{mux, "PUT /request/1", core.Key("order", "1")},
			{mux, "PUT /gin/1", "500 misconfigured"},
			{mux, "PUT /wild/a", routeKey("/wild/{path...}", "a")},
			{mux, "PUT /no-key/1", "500 misconfigured"},
			{around, "PUT /orders/42", "500 misconfigured"},
			{around, "GET /orders/42", "none"},
		} {
			method, path, _ := strings.Cut(c.request, " ")
			got := call(c.h, method, path, `{"id":1}`)
			have := got.body
			if got.status != 200 {
				have = fmt.Sprintf("%d %s", got.status, got.kind(w))
			}
			if have != c.want {
				w.Errorf("%s: %s, want %s", c.request, have, c.want)
			}
		}
	})
}

// A handler without a key to lock is never run without the lock, in gin either.
func TestLockWithoutAKey(t *testing.T) {
	bubble(t, 1, func(w *world) {
		r := router()
		r.PUT("/orders/:id", middleware(w, w.locker).Lock, text("ran"))
		call(r, "PUT", "/orders/1", "").expect(w, 500, EventMisconfigured)
	})
}

// plain has a handler on net/http, behind Lock and, where a request has an Idempotency-Key, Once.
func plain(w *world, handler http.HandlerFunc, opts ...Option) http.Handler {
	m := middleware(w, w.locker, append([]Option{ByParam("id")}, opts...)...)
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", m.OnceHandler(m.LockHandler(handler)))
	return mux
}

func TestHandlerOneAtATime(t *testing.T) {
	bubble(t, 1, func(w *world) {
		running, goOn := make(chan struct{}, 10), make(chan struct{})
		h := plain(w, func(rw http.ResponseWriter, r *http.Request) {
			running <- struct{}{}
			<-goOn
			fmt.Fprint(rw, "done")
		}, WithMaxWait(time.Second), WithHTTPReply(func(rw http.ResponseWriter, r *http.Request, refusal Refusal) {
			if r.URL.Query().Get("own") == "" {
				refusal.Write(rw)
				return
			}
			rw.WriteHeader(refusal.Status)
		}))
		holder := background(func() reply { return call(h, "PUT", "/orders/1", "") })
		<-running
		call(h, "PUT", "/orders/1", "").expect(w, 409, EventBusy)
		if got := call(h, "PUT", "/orders/1?own=1", ""); got.status != 409 || got.body != "" || got.header.Get("Retry-After") == "" {
			w.Errorf("%+v", got)
		}
		ctx, hangUp := context.WithCancel(context.Background())
		waiter := background(func() reply { return callWith(ctx, h, "PUT", "/orders/1", "", "Idempotency-Key", "k") })
		synctest.Wait()
		hangUp()
		if got := waiter(); got.status != 499 {
			w.Errorf("%+v", got)
		}
		next := background(func() reply { return call(h, "PUT", "/orders/1", "") })
		synctest.Wait()
		goOn <- struct{}{}
		holder().ok(w, "done")
		goOn <- struct{}{}
		next().ok(w, "done")
	})
}

func TestHandlerReplays(t *testing.T) {
	bubble(t, 1, func(w *world) {
		runs := 0
		h := plain(w, func(rw http.ResponseWriter, r *http.Request) {
			runs++
			if e, ok := FromContext(r.Context()); !ok || e.Identity == "" {
				w.Errorf("%+v %v", e, ok)
			}
			rw.Header().Set("Location", "/made")
			rw.Header().Set("Content-Type", "text/x")
			rw.WriteHeader(201)
			rw.WriteHeader(500) // net/http takes the first
			io.WriteString(rw, "made")
		})
		first := call(h, "PUT", "/orders/1", "", "Idempotency-Key", "k")
		if first.status != 201 || first.body != "made" {
			w.Errorf("%+v", first)
		}
		call(h, "PUT", "/orders/1", "", "Idempotency-Key", "k").replays(w, first)
		call(h, "PUT", "/orders/1", "other", "Idempotency-Key", "k").expect(w, 422, EventIdempotencyMismatch)
		if runs != 1 {
			w.Errorf("%d runs", runs)
		}
	})
}

// After a loss there is no clean answer: not if nothing was sent, not if something was, not if the connection is hidden.
func TestHandlerLost(t *testing.T) {
	for way, write := range map[string]func(w http.ResponseWriter){
		"nothing":     func(http.ResponseWriter) {},
		"header only": func(w http.ResponseWriter) { w.WriteHeader(201) },
		"body":        func(w http.ResponseWriter) { io.WriteString(w, "half") },
		"flushed":     func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"early hints": func(w http.ResponseWriter) { w.WriteHeader(103) },
	} {
		for _, hidden := range []bool{false, true} {
			for _, key := range []string{"", "k"} {
				t.Run(fmt.Sprintf("%s, hidden %v, key %q", way, hidden, key), func(t *testing.T) {
					broken := way != "nothing" && way != "early hints" && !hidden && key == ""
					bubble(t, 1, func(w *world) { handlerLost(w, write, hidden, key, broken) })
				})
			}
		}
	}
}

func handlerLost(w *world, write func(w http.ResponseWriter), hidden bool, key string, broken bool) {
	h := plain(w, func(rw http.ResponseWriter, r *http.Request) {
		write(rw)
		w.lose(r.Context())
		<-r.Context().Done()
		if !errors.Is(context.Cause(r.Context()), core.ErrLost) {
			w.Errorf("ended by %v", context.Cause(r.Context()))
		}
	})
	defer func() {
		if p := recover(); (p == http.ErrAbortHandler) != broken {
			w.Errorf("panic %v", p)
		}
	}()
	out := httptest.NewRecorder()
	var to http.ResponseWriter = recorder{out}
	if hidden {
		to = struct{ http.ResponseWriter }{to}
	}
	req := httptest.NewRequest("PUT", "/orders/1", nil)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	h.ServeHTTP(to, req)
	if out.Code != 503 || !bytes.Contains(out.Body.Bytes(), []byte("httplock:lost")) {
		w.Errorf("%d %s", out.Code, out.Body)
	}
}

// A handler may answer as it likes, with a buffer and without, as if the middleware were not there.
func TestHandlerAnswers(t *testing.T) {
	large := strings.Repeat("0123456789", 20_000)
	handlers := map[string]http.HandlerFunc{
		"large":   func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, large) },
		"nothing": func(w http.ResponseWriter, r *http.Request) {},
		"status":  func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) },
		"error":   func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"pieces": func(w http.ResponseWriter, r *http.Request) {
			for range 4 {
				io.WriteString(w, large[:50_000])
				w.(http.Flusher).Flush()
			}
		},
		"hints": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(103); w.WriteHeader(201) },
		"controller": func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			fmt.Fprint(w, c.SetWriteDeadline(time.Now().Add(time.Minute)))
		},
		"hijack": func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nown")
		},
	}

	m := middleware(t, patientLocker(t, testutil.NewNodes(t, 1)), ByParam("id"))
	buffered := with(t, m, WithBuffer(70_000))
	mux := http.NewServeMux()
	for name, h := range handlers {
		mux.Handle("/bare/"+name+"/{id}", h)
		mux.Handle("/locked/"+name+"/{id}", m.LockHandler(h))
		mux.Handle("/buffered/"+name+"/{id}", buffered.LockHandler(h))
		mux.Handle("/once/"+name+"/{id}", m.OnceHandler(m.LockHandler(h)))
	}
	s := serve(t, mux)
	for name := range handlers {
		want := do(t.Context(), "PUT", s.URL+"/bare/"+name+"/1", "x")
		for _, way := range []string{"locked", "buffered", "once"} {
			got := do(t.Context(), "PUT", s.URL+"/"+way+"/"+name+"/1", "x", "Idempotency-Key", name)
			if got.status != want.status || got.body != want.body || got.err != nil || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
				t.Errorf("%s, %s: %d, %d bytes, %v, %v; bare %d, %d bytes, %v", way, name, got.status, len(got.body), got.err, got.header, want.status, len(want.body), want.header)
			}
		}
	}
}

// The entrances exclude each other where they share a key.
func TestEntrancesShareKeys(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithScope("orders"), WithMaxWait(0))
		g := newTurnstile()
		r := router()
		r.PUT("/orders/:id", m.Lock, g.handle)
		mux := http.NewServeMux()
		mux.Handle("/orders/{id}", m.LockHandler(http.HandlerFunc(keyOfRequest)))
		holder := background(func() reply { return call(r, "PUT", "/orders/1", "") })
		<-g.runs
		call(mux, "PUT", "/orders/1", "").expect(w, 409, EventBusy)
		g.goOn <- struct{}{}
		holder().ok(w, "done")
		call(mux, "PUT", "/orders/1", "").ok(w, scopeKey("orders", "1"))
	})
}

// A reply of net/http's serves gin as well, where gin has none of its own.
func TestHTTPReplyInGin(t *testing.T) {
	bubble(t, 1, func(w *world) {
		own := WithHTTPReply(func(rw http.ResponseWriter, _ *http.Request, refusal Refusal) { fmt.Fprint(rw, refusal.Kind) })
		r := router()
		r.PUT("/a", middleware(w, w.locker, ByHeader("X"), own).Lock)
		r.PUT("/b", middleware(w, w.locker, ByHeader("X"), own, WithReply(func(c *gin.Context, r Refusal) { c.String(418, "gin") })).Lock)
		for path, want := range map[string]reply{"/a": {status: 400, body: "key_missing"}, "/b": {status: 418, body: "gin"}} {
			if got := call(r, "PUT", path, ""); got.status != want.status || got.body != want.body {
				w.Errorf("%s: %+v", path, got)
			}
		}
	})
}
