package httplock

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/internal/race"
)

// stopsAfterASecond is a middleware that stops waiting for its handlers after a second, and gives them its own
// ResponseWriter. It sends to over when they have returned.
func stopsAfterASecond(h http.Handler, over chan<- bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()

		go func() {
			defer func() { _ = recover(); over <- true }()
			h.ServeHTTP(w, r.WithContext(ctx))
		}()
		<-ctx.Done()
		http.Error(w, "late", http.StatusGatewayTimeout)
	})
}

// A pooledWriter compresses with a compressor that serves one request after the other.
type pooledWriter struct {
	http.ResponseWriter
	zip *gzip.Writer
}

func (w pooledWriter) Write(b []byte) (int, error) { return w.zip.Write(b) }

// An openPooledWriter also lets Lock reach the connection, so that responses are streamed.
type openPooledWriter struct{ pooledWriter }

func (w openPooledWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w openPooledWriter) Flush() { _ = w.zip.Flush(); flushes(w.ResponseWriter) }

func pooled(h http.Handler, open bool) http.Handler {
	pool := make(chan *gzip.Writer, 1)
	pool <- gzip.NewWriter(nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		zip := <-pool
		defer func() { pool <- zip }()

		zip.Reset(w)
		w.Header().Set("Content-Encoding", "gzip")
		inner := pooledWriter{w, zip}
		if open {
			h.ServeHTTP(openPooledWriter{inner}, r)
		} else {
			h.ServeHTTP(inner, r)
		}
		zip.Close()
	})
}

// With Arrived, what a handler writes does not reach the next request if a middleware has not waited for the handler,
// although the writer of another middleware then belongs to the next request.
func TestResponseAfterTheRequest(t *testing.T) {
	race.SkipSweep(t) // two goroutines use a writer of net/http
	for _, open := range []bool{false, true} {
		bubbleOf(t, fmt.Sprint("open ", open), 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"))
			over, goOn, begun, resume := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
			h := http.NewServeMux()
			h.Handle("/orders/", stopsAfterASecond(mux(m, func(rw http.ResponseWriter, r *http.Request) {
				io.WriteString(rw, "first of A;")
				flushes(rw)
				<-goOn
				io.WriteString(rw, "second of A;")
				flushes(rw)
				rw.Header().Set(http.TrailerPrefix+"X-Late", "A")
			}), over))
			h.HandleFunc("/b", func(rw http.ResponseWriter, _ *http.Request) {
				io.WriteString(rw, "b1;")
				begun <- true
				<-resume
				io.WriteString(rw, "b2")
			})
			s := w.serve(Arrived(pooled(h, open)))

			for _, protocol := range protocols {
				_ = s.do(context.Background(), protocol, "PUT", "/orders/1", "")
				b := background(func() reply { return s.do(context.Background(), protocol, "GET", "/b", "") })
				<-begun
				goOn <- true
				<-over
				resume <- true
				if got := b(); got.body != "b1;b2" || got.err != nil || got.header.Get("X-Late") != "" {
					w.Errorf("%s: %+v", protocol, got)
				}
			}
		})
	}
}

// A reusedWriter is the writer of a middleware that keeps its writers in a pool: it belongs to one request after the
// other, and so does its header.
type reusedWriter struct{ http.ResponseWriter }

// An openReusedWriter also leads to the connection.
type openReusedWriter struct{ *reusedWriter }

func (w openReusedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func reusing(h http.Handler, open bool) http.Handler {
	pool := make(chan *reusedWriter, 1)
	pool <- &reusedWriter{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reused := <-pool
		defer func() { pool <- reused }()

		reused.ResponseWriter = w
		if open {
			h.ServeHTTP(openReusedWriter{reused}, r)
		} else {
			h.ServeHTTP(reused, r)
		}
	})
}

// With Arrived, a Lock that begins after the request is over, or learns its tenant then, runs no handlers. Neither a
// refusal nor a record reaches the next request.
func TestLockAfterTheRequest(t *testing.T) { //nolint:gocognit // cases in cases
	race.SkipSweep(t) // two goroutines use a writer of net/http
	for _, open := range []bool{false, true} {
		for _, where := range []string{"before Lock", "in Lock", "in Lock, recorded", "in Lock, too large a record"} {
			bubbleOf(t, fmt.Sprint(where, ", open ", open), 1, func(w *world) {
				lockBegins, goOn := make(chan bool), make(chan bool)
				m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender), WithTenant(func(r *http.Request) (string, error) {
					if where != "before Lock" && r.Header.Get("X-Slow") != "" {
						lockBegins <- true
						<-goOn
					}
					return "acme", nil
				}))
				over, begun, resume := make(chan bool, 1), make(chan bool), make(chan bool)
				runs := 0
				locked := mux(m, func(rw http.ResponseWriter, _ *http.Request) {
					runs++
					rw.Header().Set("X-Account", "A")
					rw.WriteHeader(201)
					if where == "in Lock, too large a record" {
						io.WriteString(rw, strings.Repeat("x", 100<<10))
					}
					io.WriteString(rw, "of A;")
				})
				late := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if where == "before Lock" && r.Header.Get("X-Slow") != "" {
						lockBegins <- true
						<-goOn
					}
					locked.ServeHTTP(rw, r.WithContext(context.WithoutCancel(r.Context())))
				})

				h := http.NewServeMux()
				h.Handle("/orders/", stopsAfterASecond(late, over))
				h.HandleFunc("/b", func(rw http.ResponseWriter, _ *http.Request) {
					begun <- true
					<-resume
					io.WriteString(rw, "b")
				})
				s := w.serve(Arrived(reusing(h, open)))
				if strings.Contains(where, "record") {
					call(locked, "PUT", "/orders/1", "", "Idempotency-Key", "k")
				}
				before := runs

				for _, protocol := range protocols {
					for _, key := range []string{"", "k"} {
						a := background(func() reply {
							return s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key, "X-Slow", "1")
						})
						<-lockBegins
						_ = a()
						b := background(func() reply { return s.do(context.Background(), protocol, "GET", "/b", "") })
						<-begun
						goOn <- true
						<-over
						resume <- true
						got := b()
						// A writer that does not lead to Arrived gets a status, see abandon.
						if got.body != "b" || got.err != nil || open && got.status != 200 {
							w.Errorf("%s: %+v", protocol, got)
						}
						if got.header.Get("X-Account")+got.header.Get("Idempotent-Replayed")+got.header.Get("Idempotent-Status") != "" {
							w.Errorf("%s: %v", protocol, got.header)
						}
					}
				}
				if runs != before {
					w.Errorf("%d runs after the requests", runs-before)
				}
			})
		}
	}
}

// In gin, the handlers after a Lock that does not run them do not run at all: not if http.TimeoutHandler has responded
// before Lock knows its key or gets it, and not if Lock's writer panics, or a handler before them.
func TestHandlersThatLockDoesNotRun(t *testing.T) {
	unlocked := func(w *world) gin.HandlerFunc {
		return func(c *gin.Context) {
			if _, held := core.FromContext(c.Request.Context()); !held {
				w.Error("a handler runs without a lease")
			}
			c.String(http.StatusOK, "done")
		}
	}
	sender := func(r *http.Request) (string, error) {
		if r.Header.Get("X-Slow") != "" {
			time.Sleep(2 * time.Second)
		}
		return "alice", nil
	}

	for _, recorded := range []bool{false, true} {
		bubbleOf(t, fmt.Sprint("slow function, recorded ", recorded), 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, sender))
			var runs atomic.Int64
			h := mount(m.Lock, func(*gin.Context) { runs.Add(1) }, unlocked(w))
			s := w.serve(Arrived(http.TimeoutHandler(h, time.Second, "late")))
			put := func(slow string) reply {
				return s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", "k", "X-Slow", slow)
			}

			if recorded {
				put("").ok(w, "done")
			}
			before := runs.Load()
			if got := put("yes"); got.status != 503 {
				w.Errorf("%+v", got)
			}
			time.Sleep(time.Minute)
			if late := runs.Load() - before; late != 0 {
				w.Errorf("%d runs after the request", late)
			}
		})
	}

	for _, key := range []string{"", "k"} {
		bubbleOf(t, "client leaves, key "+key, 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender), WithMaxWait(time.Hour))
			s := w.serve(Arrived(http.TimeoutHandler(mount(m.Lock, unlocked(w)), time.Hour, "late")))
			other := must(w.replica().Acquire(w.Context(), routeKey("/orders/:id", "1")))
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if got := s.do(ctx, "HTTP/2.0", "PUT", "/orders/1", "", "Idempotency-Key", key); got.err == nil {
				w.Errorf("%+v", got)
			}
			time.Sleep(time.Minute)
			other.Release(w.Context())
		})
	}

	// The middleware recovers, and does not abort.
	recovers := func(c *gin.Context) {
		defer func() { _ = recover() }()
		c.Next()
	}
	bubbleOf(t, "panics", 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		handlers := map[string]http.Handler{
			"of a handler": mount(recovers, m.Lock, func(*gin.Context) { panic("handler") }, unlocked(w)),
			"of a writer": mount(recovers, func(c *gin.Context) { c.Writer = panickingWriter{c.Writer} },
				misplacedLock(w), unlocked(w)),
		}
		for name, h := range handlers {
			if got := call(h, "PUT", "/orders/1", ""); strings.Contains(got.body, "done") {
				w.Errorf("panic %s: %+v", name, got)
			}
		}
	})
}

// misplacedLock returns a Lock that refuses each request.
func misplacedLock(w *world) gin.HandlerFunc { return middleware(w, w.locker, ByParam("absent")).Lock }

// A panickingWriter panics when the response is sent.
type panickingWriter struct{ gin.ResponseWriter }

func (panickingWriter) WriteHeader(int) { panic("writer") }

// The context of a request that is over does not make another request over: a middleware may give a request the context
// of its session. The response is that of the handlers, or a refusal after a loss.
func TestContextOfAnotherRequest(t *testing.T) { //nolint:gocognit // cases in cases
	for _, host := range hosts[:2] {
		for _, lose := range []bool{false, true} {
			for _, isOpen := range []bool{false, true} {
				bubbleOf(t, fmt.Sprintf("%s, lose %v, open %v", host.name, lose, isOpen), 1, func(w *world) {
					m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(false, NoSender))
					session, leave, left := make(chan context.Context, 1), make(chan bool), make(chan bool)
					locked := host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
						io.WriteString(rw, "paid")
						if isOpen {
							leave <- true
							<-left
						}
						if lose {
							expire(r.Context())
						}
						io.WriteString(rw, " all")
					})
					s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
						if r.URL.Path != "/login" {
							locked.ServeHTTP(rw, r.WithContext(<-session))
							return
						}
						session <- context.WithoutCancel(r.Context())
						if isOpen { // until the handlers of the other request run
							<-leave
						}
					})))

					for _, protocol := range protocols {
						for _, key := range []string{"", "k" + protocol} {
							login := background(func() reply { return s.do(context.Background(), "HTTP/1.1", "POST", "/login", "") })
							if !isOpen {
								_ = login()
							}
							put := background(func() reply {
								return s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)
							})
							if isOpen {
								_ = login()
								left <- true
							}
							if lose {
								put().expect(w, 503, EventLost)
							} else {
								put().ok(w, "paid all")
							}
						}
					}
				})
			}
		}
	}
}

// A Lock that begins after the request is over, with the writer of another request and a context that is not that of its
// own request either, runs no handlers.
func TestWriterOfAnotherRequest(t *testing.T) {
	race.SkipSweep(t) // two goroutines use a writer of net/http
	for _, isSession := range []bool{false, true} {
		bubbleOf(t, fmt.Sprint("session ", isSession), 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"))
			var runs atomic.Int64
			locked := mux(m, func(rw http.ResponseWriter, _ *http.Request) { runs.Add(1); io.WriteString(rw, "of A;") })
			session, leave := make(chan context.Context, 1), make(chan bool)
			session <- context.Background()
			over, goOn, begun, resume := make(chan bool, 1), make(chan bool), make(chan bool), make(chan bool)

			h := http.NewServeMux()
			h.HandleFunc("/login", func(_ http.ResponseWriter, r *http.Request) {
				<-session
				session <- context.WithoutCancel(r.Context())
				<-leave
			})
			h.Handle("/orders/", stopsAfterASecond(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				<-goOn
				ctx := <-session
				session <- ctx
				locked.ServeHTTP(rw, r.WithContext(ctx))
			}), over))
			h.HandleFunc("/b", func(rw http.ResponseWriter, _ *http.Request) {
				begun <- true
				<-resume
				io.WriteString(rw, "b")
			})
			s := w.serve(Arrived(reusing(h, true)))
			if isSession {
				login := background(func() reply {
					return w.serve(Arrived(h)).do(context.Background(), "HTTP/1.1", "POST", "/login", "")
				})
				defer func() { leave <- true; login() }()
			}

			for _, protocol := range protocols {
				_ = s.do(context.Background(), protocol, "PUT", "/orders/1", "")
				b := background(func() reply { return s.do(context.Background(), protocol, "GET", "/b", "") })
				<-begun
				goOn <- true
				<-over
				resume <- true
				b().ok(w, "b")
			}
			if n := runs.Load(); n != 0 {
				w.Errorf("%d runs after the requests", n)
			}
		})
	}
}

// Once the outermost Arrived has returned, no Lock runs its handlers, whatever is between them: another Arrived, a
// connection that was taken over, or the writer of another server.
func TestOutermostArrivedHasReturned(t *testing.T) {
	for _, key := range []string{"", "k"} {
		bubbleOf(t, "another Arrived, key "+key, 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
			var runs atomic.Int64
			inner := Arrived(mux(m, func(http.ResponseWriter, *http.Request) { runs.Add(1) }))
			slow := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				time.Sleep(2 * time.Second)
				inner.ServeHTTP(rw, r.WithContext(context.WithoutCancel(r.Context())))
			})
			s := w.serve(Arrived(http.TimeoutHandler(slow, time.Second, "late")))
			for _, protocol := range protocols {
				if got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key); got.status != 503 {
					w.Errorf("%s: %+v", protocol, got)
				}
			}
			time.Sleep(time.Minute)
			if n := runs.Load(); n != 0 {
				w.Errorf("%d runs after the requests", n)
			}
		})
	}

	bubbleOf(t, "writer of another server", 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		var runs atomic.Int64
		locked := mux(m, func(http.ResponseWriter, *http.Request) { runs.Add(1) })
		late := make(chan *http.Request, 1)
		first := w.serve(Arrived(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			late <- r.WithContext(context.WithoutCancel(r.Context()))
		})))
		second := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { locked.ServeHTTP(rw, <-late) }))
		_ = first.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "")
		time.Sleep(time.Minute)
		got := second.do(context.Background(), "HTTP/1.1", "GET", "/b", "")
		if n := runs.Load(); got.status != 503 || n != 0 {
			w.Errorf("%d runs after the request, %+v", n, got)
		}
	})

	bubbleOf(t, "taken over", 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		var runs atomic.Int64
		locked := mux(m, func(http.ResponseWriter, *http.Request) { runs.Add(1) })
		late := make(chan func(), 1)
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			conn, _, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				w.Error(err)
				return
			}
			conn.Close()
			late <- func() {
				recorder := httptest.NewRecorder()
				locked.ServeHTTP(recorder, r.WithContext(context.WithoutCancel(r.Context())))
				if recorder.Code != 503 {
					w.Errorf("%d", recorder.Code)
				}
			}
		})))
		_ = s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "")
		time.Sleep(time.Minute)
		(<-late)()
		if n := runs.Load(); n != 0 {
			w.Errorf("%d runs after the request", n)
		}
	})
}

// If neither the writer of a request nor its context is its own, a Lock sends no success.
func TestNeitherContextNorWriterIsItsOwn(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		var session context.Context
		locked := mux(m, func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "paid") })
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/login" {
				session = context.WithoutCancel(r.Context())
				return
			}
			locked.ServeHTTP(rw, r.Clone(session)) // with a header of its own
		})))
		_ = s.do(context.Background(), "HTTP/1.1", "POST", "/login", "")
		for _, protocol := range protocols {
			if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.status != 503 {
				w.Errorf("%s: %+v", protocol, got)
			}
		}
	})
}

// A part of a request that goes on after the request is over has a recorder for its response. The recorder gets no
// success.
func TestPartAfterTheRequest(t *testing.T) {
	for _, inTime := range []bool{false, true} {
		bubbleOf(t, fmt.Sprint("in time ", inTime), 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(false, NoSender))
			h := http.NewServeMux()
			h.Handle("PUT /orders/{id}", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if !inTime {
					time.Sleep(2 * time.Second)
				}
				expire(r.Context())
			})))
			parts := make(chan *httptest.ResponseRecorder, 1)
			h.Handle("POST /batch", http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				part := must(http.NewRequestWithContext(r.Context(), "PUT", "/orders/1", nil))
				if key := r.Header.Get("Idempotency-Key"); key != "" {
					part.Header.Set("Idempotency-Key", key)
				}
				recorded := httptest.NewRecorder()
				defer func() { parts <- recorded }()
				h.ServeHTTP(recorded, part)
			}), time.Second, "late"))
			s := w.serve(Arrived(h))

			for _, key := range []string{"", "k"} {
				_ = s.do(context.Background(), "HTTP/1.1", "POST", "/batch", "", "Idempotency-Key", key)
				if part := <-parts; part.Code != 503 {
					w.Errorf("key %q: %d %q", key, part.Code, part.Body)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// With Arrived, a handler that its middleware has not waited for cannot change the connection of the next request.
func TestDeadlinesAfterTheRequest(t *testing.T) {
	race.SkipSweep(t) // two goroutines use a writer of net/http
	for name, late := range map[string]func(*http.ResponseController) error{
		"read":   func(c *http.ResponseController) error { return c.SetReadDeadline(time.Now().Add(time.Millisecond)) },
		"write":  func(c *http.ResponseController) error { return c.SetWriteDeadline(time.Now().Add(time.Millisecond)) },
		"duplex": func(c *http.ResponseController) error { return c.EnableFullDuplex() },
	} {
		bubbleOf(t, name, 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"))
			over, goOn, begun, resume := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
			h := http.NewServeMux()
			handler := func(rw http.ResponseWriter, _ *http.Request) {
				<-goOn
				if err := late(http.NewResponseController(rw)); err == nil {
					w.Error("no error")
				}
			}
			h.Handle("/orders/", stopsAfterASecond(mux(m, handler), over))
			h.Handle("/free", stopsAfterASecond(http.HandlerFunc(handler), over))
			h.HandleFunc("/b", func(rw http.ResponseWriter, r *http.Request) {
				begun <- true
				<-resume
				time.Sleep(time.Second)
				fmt.Fprint(rw, "b ", r.Context().Err())
			})
			s := w.serve(Arrived(h))
			conn := must(s.dial())
			defer conn.Close()
			in := bufio.NewReader(conn)

			for _, path := range []string{"/orders/1", "/free"} {
				go io.WriteString(conn, "PUT "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
				if got := replyOf(http.ReadResponse(in, nil)); got.status != 504 {
					w.Fatalf("%+v", got)
				}
				go io.WriteString(conn, "GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
				<-begun
				goOn <- true
				<-over
				resume <- true
				replyOf(http.ReadResponse(in, nil)).ok(w, "b <nil>")
			}
		})
	}
}

// The loss of a permit or a lease around Lock counts even if it is not what has ended the context of the request: a
// deadline has, or nothing does.
func TestLossAroundAContextOfAnotherCause(t *testing.T) {
	deadline := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	detached := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithoutCancel(ctx), func() {}
	}
	for name, derive := range map[string]func(context.Context) (context.Context, context.CancelFunc){"deadline": deadline, "detached": detached} {
		for _, what := range []string{"permit", "lease"} {
			bubbleOf(t, name+", "+what, 1, func(w *world) {
				locker := w.holding()
				around := locker.Do
				if what == "permit" {
					around = must(semaphore.New(locker, 2)).Do
				}
				m := middleware(w, locker, ByParam("id"), WithIdempotency(false, NoSender))
				runs := 0
				var outer context.Context
				h := mux(m, func(rw http.ResponseWriter, r *http.Request) {
					runs++
					io.WriteString(rw, "own")
					<-outer.Done()
					lost := time.Now()
					<-r.Context().Done()
					if late := time.Since(lost); late > time.Second {
						w.Errorf("the context ends %v after the loss", late)
					}
				})
				s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					_ = around(r.Context(), "around", func(ctx context.Context) error {
						outer = ctx
						inner, cancel := derive(ctx)
						defer cancel()
						h.ServeHTTP(rw, r.WithContext(inner))
						return nil
					}, core.MaxHold(5*time.Second))
				})))

				for _, key := range []string{"", "k"} {
					for range 2 {
						s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", key).expect(w, 503, EventLost)
						time.Sleep(time.Minute)
					}
				}
				if runs != 4 {
					w.Errorf("%d runs", runs)
				}
			})
		}
	}
}

// The handler's context ends with a lease that is not the innermost one, if the request's context does. If a lease
// around is lost during the wait, the handler does not run.
func TestLossFurtherOut(t *testing.T) {
	bubble(t, 1, func(w *world) {
		locker := w.holding()
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender), WithMaxWait(time.Hour))
		runs := 0
		h := mux(m, func(rw http.ResponseWriter, r *http.Request) {
			runs++
			io.WriteString(rw, "own")
			<-r.Context().Done()
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			first := must(locker.Acquire(r.Context(), "first", core.MaxHold(5*time.Second)))
			defer first.Release(r.Context())
			second := must(locker.Acquire(r.Context(), "second"))
			defer second.Release(r.Context())
			ctx, cancel := context.WithCancelCause(second.Context())
			defer cancel(nil)
			defer context.AfterFunc(first.Context(), func() { cancel(context.Cause(first.Context())) })()
			h.ServeHTTP(rw, r.WithContext(ctx))
		})))
		put := func(key string) reply {
			return s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", key)
		}
		for _, key := range []string{"", "k"} {
			put(key).expect(w, 503, EventLost)
			time.Sleep(time.Minute)
		}

		detached := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_ = locker.Do(r.Context(), "around", func(ctx context.Context) error {
				h.ServeHTTP(rw, r.WithContext(context.WithoutCancel(ctx)))
				return nil
			}, core.MaxHold(5*time.Second))
		})))
		runs = 0
		other := must(w.replica().Acquire(w.Context(), routeKey("/orders/{id}", "1")))
		for _, key := range []string{"", "k"} {
			got := detached.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", key)
			if got.status != 503 || runs > 0 {
				w.Errorf("key %q: %d, %d runs", key, got.status, runs)
			}
		}
		other.Release(w.Context())
	})
}

// A function of an option may take a form apart with MultipartReader. The handler still gets the form.
func TestFormsThatAFunctionReadsInParts(t *testing.T) {
	byReader := func(r *http.Request) (string, error) {
		parts, err := r.MultipartReader()
		if err != nil {
			return "", err
		}
		part, err := parts.NextPart()
		if err != nil {
			return "", err
		}
		value, err := io.ReadAll(part)
		return string(value), err
	}
	ginReader := func(r *http.Request) (string, error) {
		if c, ok := GinContext(r); ok {
			r = c.Request
		}
		return byReader(r)
	}

	bubble(t, 1, func(w *world) {
		for _, f := range []func(*http.Request) (string, error){byReader, ginReader} {
			m := middleware(w, w.locker, ByFunc(f))
			for _, host := range hosts[:2] {
				h := host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
					fmt.Fprint(rw, r.FormValue("order"), r.PostForm["order"])
				})
				var body strings.Builder
				form := multipart.NewWriter(&body)
				_ = form.WriteField("order", "5")
				form.Close()
				call(h, "PUT", "/orders/1", body.String(), "Content-Type", form.FormDataContentType()).ok(w, "5[5]")
			}
		}
	})
}

// timesOutInGin is a middleware of gin that waits for the handlers for a second, and then lets gin give its Context to
// another request. Over says that the handlers have returned.
func timesOutInGin(over chan<- bool) gin.HandlerFunc {
	return func(c *gin.Context) {
		ended := make(chan bool)
		go func() {
			defer func() {
				_ = recover() // of the Lock whose response comes too late
				close(ended)
				over <- true
			}()
			c.Next()
		}()
		select {
		case <-ended:
		case <-time.After(time.Second):
			c.AbortWithStatus(http.StatusGatewayTimeout)
		}
	}
}

// With Arrived, a Lock whose request is over leaves gin's Context to the request that gin has given it to.
func TestGinContextOfAnotherRequest(t *testing.T) {
	race.SkipSweep(t) // two goroutines use a Context of gin
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
		over, goOn, begun, resume := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
		r := router()
		r.PUT("/orders/:id", timesOutInGin(over), m.Lock, gin.WrapF(func(http.ResponseWriter, *http.Request) { <-goOn }))
		r.POST("/payments/:id", m.Lock, func(c *gin.Context) {
			begun <- true
			<-resume
			c.String(200, "paid")
		})
		s := w.serve(Arrived(r))

		for _, protocol := range protocols {
			_ = s.do(context.Background(), protocol, "PUT", "/orders/1", "")
			b := background(func() reply {
				return s.do(context.Background(), protocol, "POST", "/payments/1", "", "Idempotency-Key", protocol)
			})
			<-begun
			goOn <- true
			<-over
			resume <- true
			b().ok(w, "paid")
		}
	})
}

// A middleware around gin may go on with the handlers after it has responded, and keep their response for later. A
// Recovery inside it still responds to a panic, as the Context is that of its request.
func TestPanicAfterTheRequest(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		kept := make(chan *httptest.ResponseRecorder, 1)
		r := gin.New()
		r.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
		r.PUT("/orders/:id", m.Lock, func(*gin.Context) {
			time.Sleep(time.Minute)
			panic("of the handler")
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
			later := httptest.NewRecorder()
			go func() {
				r.ServeHTTP(later, req)
				kept <- later
			}()
			time.Sleep(time.Second)
			rw.WriteHeader(http.StatusServiceUnavailable)
		})))

		for _, protocol := range protocols {
			if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.status != 503 {
				w.Errorf("%s: %+v", protocol, got)
			}
			if later := <-kept; later.Code != http.StatusInternalServerError {
				w.Errorf("%s: %d %s", protocol, later.Code, later.Body)
			}
		}
	})
}
