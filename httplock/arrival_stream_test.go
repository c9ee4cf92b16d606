package httplock

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A rewriting writer changes the header that it passes on, and has the method Unwrap, so that Lock may stream.
type rewriting struct {
	unwrapping
	rewrite func(w http.ResponseWriter, status int) int
}

func (r rewriting) WriteHeader(status int) {
	r.ResponseWriter.WriteHeader(r.rewrite(r.ResponseWriter, status))
}
func (r rewriting) Flush() { flushes(r.ResponseWriter) }

func rewritesTo(to int, header ...string) func(w http.ResponseWriter, status int) int {
	return func(w http.ResponseWriter, status int) int {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		if to > 0 {
			status = to
		}
		return status
	}
}

// rewrites has ways to change the header of a stream, so that its client might not wait for the end. With those that
// refuse, the response does not pass, with or without a loss.
var rewrites = map[string]struct {
	rewrite func(w http.ResponseWriter, status int) int
	refuse  bool
}{
	"204":                      {rewritesTo(204), true},
	"205":                      {rewritesTo(205), true},
	"304":                      {rewritesTo(304), true},
	"101":                      {rewritesTo(101), true},
	"303":                      {rewritesTo(303, "Location", "/elsewhere"), true},
	"303, length":              {rewritesTo(303, "Location", "/elsewhere", "Content-Length", "0"), true},
	"length":                   {rewritesTo(0, "Content-Length", "4"), false},
	"201, length":              {rewritesTo(201, "Content-Length", "4"), false},
	"length, in small letters": {func(w http.ResponseWriter, n int) int { w.Header()["content-length"] = []string{"4"}; return n }, false},
	"identity":                 {rewritesTo(0, "Transfer-Encoding", "identity"), false},
	"identity and close":       {rewritesTo(0, "Transfer-Encoding", "identity", "Connection", "close"), false},
}

// A middleware that changes the header of a stream does not make a whole response of the part that was sent before a
// loss. This test runs in real time, over TCP.
func TestRewrittenStreams(t *testing.T) {
	t.Parallel()
	m := anyKey(t)
	h := mux(m, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half")
		flushes(w)
		if strings.HasPrefix(r.URL.Path, "/orders") {
			expire(r.Context())
		}
	})
	for name, c := range rewrites {
		for _, secure := range []bool{false, true} {
			s := started(Arrived(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(rewriting{unwrapping{w}, c.rewrite}, r)
			})), secure)
			for _, http2 := range []bool{false, true} {
				client := clientOf(s, secure, http2)
				client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				put := func(path string) reply {
					return replyOf(client.Do(must(http.NewRequestWithContext(t.Context(), "PUT", s.URL+path, nil))))
				}
				if got := put("/orders/1"); got.err == nil {
					t.Errorf("%s, TLS %v, HTTP/2 %v: a clean %d %q after a loss", name, secure, http2, got.status, got.body)
				}
				got := put("/refunds/1")
				if got.whole() == c.refuse || got.whole() && (got.body != "half" || got.header.Get("Content-Length") != "") {
					t.Errorf("%s, TLS %v, HTTP/2 %v: %+v without a loss", name, secure, http2, got)
				}
			}
			s.Close()
		}
	}
}

// A middleware may turn a stream into an error, with a length.
func TestStreamThatBecomesAnError(t *testing.T) {
	bubble(t, 1, func(w *world) {
		h := mux(middleware(w, w.locker, ByParam("id")), func(rw http.ResponseWriter, _ *http.Request) {
			io.WriteString(rw, "half")
			flushes(rw)
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(rewriting{unwrapping{rw}, rewritesTo(502, "Content-Length", "4")}, r)
		})))
		for _, protocol := range protocols[1:] {
			got := s.do(context.Background(), protocol, "PUT", "/orders/1", "")
			if got.err != nil || got.status != 502 || got.body != "half" || got.header.Get("Content-Length") != "4" {
				w.Errorf("%s: %+v", protocol, got)
			}
		}
		if n := w.events.count(EventMisconfigured); n != 0 {
			w.Errorf("misconfigured %d times", n)
		}
	})
}

// A redirect is held back even if the handler flushes it, because its client would not wait for the end. So is 205.
func TestRedirectsAreHeldBack(t *testing.T) {
	for _, code := range []int{205, 303} {
		bubbleOf(t, fmt.Sprint(code), 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"), WithMaxWait(0))
			for _, lose := range []bool{false, true} {
				h := mux(m, func(rw http.ResponseWriter, r *http.Request) {
					rw.Header().Set("Location", "/elsewhere")
					rw.WriteHeader(code)
					flushes(rw)
					if lose {
						expire(r.Context())
					}
				})
				for _, s := range []*server{w.serve(h), w.serve(Arrived(h))} {
					for _, protocol := range protocols {
						want := code
						if lose {
							want = 503
						}
						if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.err != nil || got.status != want {
							w.Errorf("%s, lose %v: %+v", protocol, lose, got)
						}
						time.Sleep(time.Minute)
					}
				}
			}
		})
	}
}

// A handler that takes the connection of its own stream over, by a ResponseWriter that a middleware has kept, cannot end
// the stream by hand.
func TestStreamTakenOver(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		s := w.serve(Arrived(keeps(mux(m, func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, "half")
			flushes(rw)
			conn, _, err := http.NewResponseController(keptBy(r)).Hijack()
			if err == nil {
				io.WriteString(conn, "0\r\n\r\n")
				w.Error("taken over")
			}
		}))))
		for _, protocol := range protocols[1:] {
			if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); (got.err == nil) != (protocol == "HTTP/2.0") {
				w.Errorf("%s: %+v", protocol, got)
			}
		}
		if n := w.events.count(EventMisconfigured); n != 1 { // over HTTP/2 there is nothing to take over
			w.Errorf("misconfigured %d times", n)
		}
	})
}

// A stream is broken if the server's handler returns while the handler under Lock still writes it, in a goroutine of
// its own: nobody knows yet whether its lease lasts.
func TestStreamThatOutlivesItsRequest(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		begun, goOn, over := make(chan bool), make(chan bool), make(chan bool)
		h := mux(m, func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, "half")
			flushes(rw)
			begun <- true
			<-goOn
			expire(r.Context())
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			later := r.WithContext(context.WithoutCancel(r.Context()))
			go func() { defer func() { _ = recover(); over <- true }(); h.ServeHTTP(rw, later) }()
			<-begun
		})))
		for _, protocol := range protocols[1:] {
			if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.err == nil {
				w.Errorf("%s: %+v", protocol, got)
			}
			goOn <- true
			<-over
			time.Sleep(time.Minute)
		}
	})
}

// If a middleware has begun a response with a Content-Length, or with a status for which no client waits, Lock does not
// stream: the client would have the whole response before a loss shows. Otherwise, it streams.
func TestBegunBeforeAStream(t *testing.T) {
	for name, c := range map[string]struct {
		begin   step
		streams bool
	}{
		"plain":                    {inTurn(writes("before"), flushes), true},
		"length":                   {inTurn(sets("Content-Length", "10"), writes("before"), flushes), false},
		"length, in small letters": {inTurn(func(w http.ResponseWriter) { w.Header()["content-length"] = []string{"10"} }, writes("before"), flushes), false},
		"201":                      {status(201), true},
		"204":                      {status(204), false},
		"205":                      {status(205), false},
		"303":                      {inTurn(sets("Location", "/elsewhere"), status(303)), false},
		"304":                      {status(304), false},
	} {
		bubbleOf(t, name, 1, func(w *world) {
			begunBeforeAStream(w, c.begin, c.streams, false)
			begunBeforeAStream(w, c.begin, c.streams, true)
		})
	}
}

func begunBeforeAStream(w *world, begin step, streams, lose bool) {
	h := mux(middleware(w, w.holding(), ByParam("id")), func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, " own")
		flushes(rw)
		time.Sleep(time.Second) // in the time of the bubble
		if lose {
			expire(r.Context())
		}
	})
	streamed := make(chan bool, 1)
	s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begin(rw)
		seen := &counting{unwrapping: unwrapping{rw}}
		began := time.Now()
		defer func() { streamed <- seen.at.Sub(began) < time.Second && !seen.at.IsZero() }()
		h.ServeHTTP(seen, r)
	})))
	for _, protocol := range protocols[1:] {
		got := s.do(context.Background(), protocol, "PUT", "/orders/1", "")
		if <-streamed != streams || lose != (got.err != nil) {
			w.Errorf("%s, lose %v: %+v", protocol, lose, got)
		}
		time.Sleep(time.Minute)
	}
}

// A counting writer knows when a part of the body was first written to it.
type counting struct {
	unwrapping
	at time.Time
}

func (c *counting) Write(b []byte) (int, error) {
	if c.at.IsZero() && len(b) > 0 {
		c.at = time.Now()
	}
	return c.ResponseWriter.Write(b)
}

func (c *counting) Flush() { flushes(c.ResponseWriter) }

// A copy that a middleware began before the handlers stops when they begin. This test runs in real time, over TCP.
func TestCopyThatBeganBeforeLock(t *testing.T) {
	t.Parallel()
	m := anyKey(t)
	for _, secure := range []bool{false, true} {
		for _, http2 := range []bool{false, true} {
			copied := make(chan error, 1)
			h := mux(m, func(_ http.ResponseWriter, r *http.Request) {
				in := r.Context().Value(keptKey{}).(*io.PipeWriter)
				_, _ = io.WriteString(in, large)
				in.Close()
				<-copied
				expire(r.Context())
			})
			s := started(Arrived(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				out, in := io.Pipe()
				w.Header().Set("Content-Length", fmt.Sprint(2*len(large)))
				go func() {
					_, err := io.Copy(w, out)
					out.CloseWithError(err)
					copied <- err
				}()
				_, _ = io.WriteString(in, large)
				h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), keptKey{}, in)))
			})), secure)
			client := clientOf(s, secure, http2)
			got := replyOf(client.Do(must(http.NewRequestWithContext(t.Context(), "PUT", s.URL+"/orders/1", nil))))
			if got.err == nil {
				t.Errorf("TLS %v, HTTP/2 %v: a clean %d, %d bytes after a loss", secure, http2, got.status, len(got.body))
			}
			s.Close()
		}
	}
}

// A middleware that copies nothing before Lock has not begun a response: after a loss, the client gets the refusal.
func TestEmptyCopyBeforeLock(t *testing.T) {
	bubble(t, 1, func(w *world) {
		h := mux(middleware(w, w.holding(), ByParam("id")), func(_ http.ResponseWriter, r *http.Request) { expire(r.Context()) })
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(rw, struct{ io.Reader }{strings.NewReader("")})
			h.ServeHTTP(rw, r)
		})))
		for _, protocol := range protocols {
			s.do(context.Background(), protocol, "PUT", "/orders/1", "").expect(w, 503, EventLost)
			time.Sleep(time.Minute)
		}
	})
}

// A response that ends with its connection, and that a middleware has begun before Lock, is reset after a loss: the end
// of the connection would be the end of the body. This test runs in real time, over TCP.
func TestIdentityBeforeLock(t *testing.T) {
	t.Parallel()
	m := anyKey(t)
	h := mux(m, func(_ http.ResponseWriter, r *http.Request) { expire(r.Context()) })
	s := started(Arrived(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Transfer-Encoding", "identity")
		io.WriteString(w, "before ")
		flushes(w)
		h.ServeHTTP(w, r)
	})), false)
	defer s.Close()

	conn := must(net.Dial("tcp", s.Listener.Addr().String()))
	defer conn.Close()
	fmt.Fprint(conn, "PUT /orders/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	if got := replyOf(http.ReadResponse(bufio.NewReader(conn), nil)); got.err == nil {
		t.Errorf("a clean %d %q after a loss", got.status, got.body)
	}
}

// An error that a handler sends past Lock counts, even if a middleware stops waiting for the handler later. An error
// that the middleware sends then does not count.
func TestErrorPastBeforeATimeout(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		runs := 0
		written := make(chan bool)
		h := mux(m, func(_ http.ResponseWriter, r *http.Request) {
			runs++
			http.Error(keptBy(r), "failed", http.StatusConflict)
			written <- true
			time.Sleep(2 * time.Second)
		})
		s := w.serve(Arrived(keeps(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			go func() {
				defer func() { _ = recover() }() // Lock breaks its request off
				h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
			}()
			<-written
			<-ctx.Done()
			rw.WriteHeader(http.StatusServiceUnavailable)
		}))))
		for _, protocol := range protocols {
			runs = 0
			for range 2 {
				got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", protocol[5:])
				if got.whole() || got.header.Get("Idempotent-Replayed") != "" {
					w.Errorf("%s: %+v", protocol, got)
				}
				time.Sleep(time.Minute)
			}
			if runs != 2 {
				w.Errorf("%s: %d runs", protocol, runs)
			}
		}
	})
}
