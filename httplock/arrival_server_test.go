package httplock

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/internal/race"
)

// A wrappingListener hides the methods of its connections, as listeners do that limit their number.
type wrappingListener struct{ net.Listener }

func (l wrappingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ net.Conn }{conn}, nil
}

// On connections that cannot be reset, a stream that was broken is no whole response, either: a Unix socket, and a
// connection that its listener wraps. This test runs in real time.
func TestStreamsOnConnectionsWithoutReset(t *testing.T) {
	t.Parallel()
	m := anyKey(t)
	stream := mux(m, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half")
		flushes(w)
		expire(r.Context())
	})
	newRequests := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // of HTTP/1.1, whatever the server has read
		stream.ServeHTTP(w, must(http.NewRequestWithContext(r.Context(), "PUT", "/orders/1", nil)))
	})
	identity := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stream.ServeHTTP(rewriting{unwrapping{w}, rewritesTo(0, "Transfer-Encoding", "identity")}, r)
	})

	for name, listen := range map[string]func() net.Listener{
		"Unix": func() net.Listener { return must(net.Listen("unix", filepath.Join(t.TempDir(), "s"))) },
		"TCP":  func() net.Listener { return wrappingListener{must(net.Listen("tcp", "127.0.0.1:0"))} },
	} {
		for i, h := range []http.Handler{stream, newRequests, identity} {
			for _, secure := range []bool{false, true} {
				s := &httptest.Server{Listener: listen(), Config: &http.Server{Handler: Arrived(h), ErrorLog: log.New(io.Discard, "", 0)}}
				protocols := []string{"1.0", "1.1"}
				start := s.Start
				if secure {
					start = s.StartTLS
				}
				start()
				for _, protocol := range protocols {
					conn := must(net.Dial(s.Listener.Addr().Network(), s.Listener.Addr().String()))
					if secure {
						conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
					}
					fmt.Fprintf(conn, "PUT /orders/1 HTTP/%s\r\nHost: x\r\nContent-Length: 0\r\n\r\n", protocol)
					got := replyOf(http.ReadResponse(bufio.NewReader(conn), nil))
					conn.Close()
					if got.err == nil && got.status < 400 {
						t.Errorf("%s, handler %d, TLS %v, HTTP/%s: a clean %d %q after a loss", name, i, secure, protocol, got.status, got.body)
					}
				}
				s.Close()
			}
		}
	}
}

// The method that the server has read counts: the client of a HEAD or CONNECT request does not wait for a body.
func TestMethodOnTheWire(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		h := http.NewServeMux()
		h.Handle("/orders/{id}", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, "half")
			flushes(rw)
			expire(r.Context())
		})))
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == "HEAD" {
				r.Method = "DELETE"
			}
			h.ServeHTTP(rw, r)
		})))

		for _, protocol := range protocols {
			if got := s.do(context.Background(), protocol, "HEAD", "/orders/1", ""); got.err != nil || got.status != 503 {
				w.Errorf("HEAD, %s: %+v", protocol, got)
			}
			time.Sleep(time.Minute)
		}
		conn := must(s.dial())
		defer conn.Close()
		go fmt.Fprint(conn, "CONNECT /orders/1 HTTP/1.1\r\nHost: x\r\n\r\n")
		if res := must(http.ReadResponse(bufio.NewReader(conn), nil)); res.StatusCode != 503 {
			w.Errorf("CONNECT: %d", res.StatusCode)
		}
		time.Sleep(time.Minute)
	})
}

// A server inside a request, with its context, has connections of its own: Arrived guards them, and not the request.
func TestServerInsideARequest(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		h := Arrived(keeps(mux(m, func(_ http.ResponseWriter, r *http.Request) {
			pasts["whole, flushed"](keptBy(r))
			expire(r.Context())
		})))
		outer := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			inner := w.serveWith(&http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return r.Context() }})
			if got := inner.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", ""); got.err == nil {
				w.Errorf("a clean %d %q after a loss", got.status, got.body)
			}
			io.WriteString(rw, "over")
		})))
		outer.do(context.Background(), "HTTP/1.1", "GET", "/", "").ok(w, "over")
		time.Sleep(time.Minute)
	})
}

// A header and the bytes of another goroutine do not meet: the server would take the bytes for the beginning of a 200.
func TestHeaderBeforeAnythingElse(t *testing.T) {
	for name, begin := range map[string]func(w http.ResponseWriter){
		"header": status(503), "bytes": writes("x"), "string": func(w http.ResponseWriter) { w.Write([]byte("x")) }, "flush": flushes,
	} {
		outer := &watchingHeader{ResponseRecorder: httptest.NewRecorder()}
		w := newArrivalWriter(outer)
		outer.watch = func() {
			isFree := w.arrived().mu.TryLock()
			if isFree {
				w.arrived().mu.Unlock()
			}
			outer.guarded = !isFree
		}
		if begin(w); !outer.guarded {
			t.Errorf("%s: another goroutine may write before the header", name)
		}
	}
}

// A watchingHeader calls watch when the header is written.
type watchingHeader struct {
	*httptest.ResponseRecorder
	watch   func()
	guarded bool
}

func (w *watchingHeader) WriteHeader(status int) {
	w.watch()
	w.ResponseRecorder.WriteHeader(status)
}

// What a goroutine of the handler sends past Lock after the handler has returned, while its lease is released, breaks the
// connection and is reported. The response of the handler is recorded.
func TestWrittenPastAfterTheHandler(t *testing.T) {
	race.SkipSweep(t) // the goroutine and Lock use net/http's writer at the same time
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
		for name, past := range map[string]step{"success": writes("past"), "error": status(409)} {
			runs := 0
			s := w.serve(Arrived(keeps(mux(m, func(rw http.ResponseWriter, r *http.Request) {
				runs++
				io.WriteString(rw, "own")
				w.nodes[0].Slow(80 * time.Millisecond) // the release takes as long
				go func() {
					time.Sleep(40 * time.Millisecond)
					past(keptBy(r))
				}()
			}))))
			for _, protocol := range protocols {
				for _, key := range []string{"", name + protocol[5:]} {
					runs = 0
					before := w.events.count(EventMisconfigured)
					put := func() reply {
						got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)
						w.nodes[0].Up()
						time.Sleep(time.Minute)
						return got
					}
					if got := put(); got.whole() || w.events.count(EventMisconfigured) != before+1 {
						w.Errorf("%s, %s, key %q: %+v, reported %d times", name, protocol, key, got, w.events.count(EventMisconfigured)-before)
					}
					if key == "" {
						continue
					}
					if put().ok(w, "own"); runs != 1 {
						w.Errorf("%s, %s: %d runs", name, protocol, runs)
					}
				}
			}
		}
	})
}

// A middleware of gin may begin the response before Lock, as one of net/http may. After a loss the connection is broken,
// with and without Arrived.
func TestBegunBeforeLockInGin(t *testing.T) {
	for name, begin := range map[string]gin.HandlerFunc{
		"written": func(c *gin.Context) { c.Writer.WriteString("before ") },
		"flushed": func(c *gin.Context) { c.Writer.Flush() },
		"hints":   func(c *gin.Context) { c.Writer.WriteHeader(103); c.Writer.WriteHeaderNow() },
	} {
		bubbleOf(t, name, 1, func(w *world) {
			begunBeforeLockInGin(w, begin, false)
			begunBeforeLockInGin(w, begin, true)
		})
	}
}

func begunBeforeLockInGin(w *world, begin gin.HandlerFunc, lose bool) {
	m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(false, NoSender))
	h := mount(recovery, begin, lockOf(m), gin.WrapF(func(rw http.ResponseWriter, r *http.Request) {
		io.WriteString(rw, "own")
		if lose {
			expire(r.Context())
		}
	}))
	for i, s := range []*server{w.serve(h), w.serve(Arrived(h))} {
		for _, protocol := range protocols {
			if lose && protocol == "HTTP/1.0" { // see TestBegunBeforeLock
				continue
			}
			for _, key := range []string{"", fmt.Sprint(i, protocol[5:], lose)} {
				got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)
				if got.whole() == lose || !lose && !strings.HasSuffix(got.body, "own") {
					w.Errorf("%s, key %q, Arrived %v, lose %v: %+v", protocol, key, i > 0, lose, got)
				}
				time.Sleep(time.Minute)
			}
		}
	}
}

// A stream goes on while another Lock of the same request runs, and is broken if that one's lease is lost.
func TestStreamBesideAnotherLock(t *testing.T) {
	for _, lose := range []bool{false, true} {
		bubbleOf(t, fmt.Sprintf("lose %v", lose), 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"))
			part := mux(m, func(rw http.ResponseWriter, r *http.Request) {
				for range 4 {
					io.WriteString(rw, "event")
					flushes(rw)
					time.Sleep(time.Second)
				}
				if lose && r.PathValue("id") == "2" {
					expire(r.Context())
				}
			})
			s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				var both sync.WaitGroup
				both.Go(func() {
					defer func() { _ = recover() }()
					part.ServeHTTP(rw, newRequest("PUT", "/orders/1").WithContext(r.Context()))
				})
				both.Go(func() {
					time.Sleep(time.Second / 2)
					part.ServeHTTP(httptest.NewRecorder(), newRequest("PUT", "/orders/2").WithContext(r.Context()))
				})
				both.Wait()
			})))
			for _, protocol := range protocols[1:] {
				if got := s.do(context.Background(), protocol, "PUT", "/batch", ""); got.whole() == lose {
					w.Errorf("%s: %+v", protocol, got)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// Some middlewares take only a writer that is an io.ReaderFrom for the server's own, and hide its other methods
// otherwise.
func TestReadFromStopsForHandlers(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		copied := make(chan error, 1)
		h := mux(m, func(_ http.ResponseWriter, r *http.Request) {
			in := r.Context().Value(keptKey{}).(*io.PipeWriter)
			_, _ = io.WriteString(in, "second")
			in.Close()
			if err := <-copied; !errors.Is(err, errBypassed) {
				w.Errorf("copied: %v", err)
			}
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			out, in := io.Pipe()
			go func() {
				_, err := rw.(io.ReaderFrom).ReadFrom(out)
				out.CloseWithError(err)
				copied <- err
			}()
			_, _ = io.WriteString(in, "first")
			h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), keptKey{}, in)))
		})))
		if got := s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", ""); got.err == nil {
			w.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
	})
}

// A middleware may stop waiting for the handlers without ending their context. Its error reaches the client, and the
// response of the handlers is recorded, with and without Arrived.
func TestMiddlewareThatStopsWaiting(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		runs, over := 0, make(chan bool)
		h := mux(m, func(rw http.ResponseWriter, _ *http.Request) {
			runs++
			time.Sleep(8 * time.Second)
			io.WriteString(rw, "own")
		})
		stops := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			go func() { h.ServeHTTP(httptest.NewRecorder(), r); over <- true }()
			time.Sleep(5 * time.Second)
			http.Error(rw, "late", http.StatusRequestTimeout)
		})
		again := mux(m, does(writes("again")))
		for i, guard := range []func(http.Handler) http.Handler{Arrived, func(h http.Handler) http.Handler { return h }} {
			first, second := w.serve(guard(stops)), w.serve(guard(again))
			for _, protocol := range protocols {
				runs = 0
				key := fmt.Sprint(i, protocol[5:])
				if got := first.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key); got.status != 408 || got.err != nil {
					w.Errorf("%s: %+v", protocol, got)
				}
				<-over
				time.Sleep(time.Minute)
				second.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key).ok(w, "own")
			}
		}
		if n := w.events.count(EventMisconfigured); n != 0 {
			w.Errorf("misconfigured %d times", n)
		}
	})
}

// A middleware of gin whose writer counts from 0 has not begun a response.
func TestWriterWithoutASize(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		s := w.serve(mount(recovery, wrapped(func(w gin.ResponseWriter) gin.ResponseWriter { return sizeless{w} }), lockOf(m), gin.WrapF(
			func(_ http.ResponseWriter, r *http.Request) { expire(r.Context()) })))
		for _, protocol := range protocols {
			s.do(context.Background(), protocol, "PUT", "/orders/1", "").expect(w, 503, EventLost)
			time.Sleep(time.Minute)
		}
	})
}

type sizeless struct{ gin.ResponseWriter }

func (sizeless) Size() int { return 0 }
