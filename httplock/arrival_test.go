package httplock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/internal/race"
)

type keptKey struct{}

// keeps is a middleware that puts its ResponseWriter into the context, for the handler.
func keeps(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), keptKey{}, w)))
	})
}

func keptBy(r *http.Request) http.ResponseWriter {
	return r.Context().Value(keptKey{}).(http.ResponseWriter)
}

// pasts has ways to send a success past the Lock. In most of them, the client would have all of it before the handler
// returns.
var pasts = map[string]step{
	"write":          inTurn(status(201), writes("past")),
	"implicit":       writes("past"),
	"string":         func(w http.ResponseWriter) { io.WriteString(w, "past") },
	"whole, flushed": inTurn(sets("Content-Length", "4"), writes("past"), flushes),
	"204, flushed":   inTurn(status(204), flushes),
	"302":            inTurn(sets("Location", "/elsewhere"), status(302)),
	"101":            status(101),
	"flush only":     flushes,
	"by controller":  func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
	"copy":           func(w http.ResponseWriter) { io.Copy(w, strings.NewReader(large)) },
	"from a reader":  func(w http.ResponseWriter) { io.Copy(w, io.LimitReader(strings.NewReader(large), 100_000)) },
	"hints first":    inTurn(sets("Link", "</style.css>"), status(103), status(201), writes("past")),
	"invalid status first": inTurn(func(w http.ResponseWriter) {
		defer func() { _ = recover() }()
		w.WriteHeader(1000)
	}, sets("Content-Length", "4"), writes("past"), flushes),
	"by its own goroutine": func(w http.ResponseWriter) {
		over := make(chan bool)
		go func() { defer close(over); io.WriteString(w, "past") }()
		<-over
	},
	"hijacked": func(w http.ResponseWriter) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npast")
			return
		}
		io.WriteString(w, "past") // as over HTTP/2
	},
}

func inTurn(steps ...step) step {
	return func(w http.ResponseWriter) { does(steps...)(w, nil) }
}

// If a handler sends a success past its Lock, to a ResponseWriter that a middleware has kept, Arrived breaks the
// connection, with or without a loss. Nothing is recorded, and a repetition runs.
func TestWrittenPast(t *testing.T) {
	race.SkipSweep(t)
	for name, past := range pasts {
		for _, lose := range []bool{false, true} {
			own := lose != (len(name)%2 == 0) // whether the handler also writes to its own writer
			bubbleOf(t, fmt.Sprintf("%s, lose %v, own %v", name, lose, own), 1, func(w *world) { writtenPast(w, past, lose, own) })
		}
	}
}

func writtenPast(w *world, past step, lose, own bool) {
	m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(false, NoSender))
	for _, host := range hosts {
		runs := 0
		s := w.serve(Arrived(keeps(host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
			runs++
			past(keptBy(r))
			if own {
				io.WriteString(rw, "own")
			}
			if lose {
				expire(r.Context())
			}
		}))))

		for _, protocol := range protocols {
			for _, key := range []string{"", fmt.Sprintf(`"%s, %s"`, host.name, protocol)} {
				ran, reported := runs, w.events.count(EventMisconfigured)
				for range 2 {
					got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)
					if got.err == nil {
						w.Errorf("%s, %s, key %q: a clean %d %q", host.name, protocol, key, got.status, got.body)
					}
					time.Sleep(time.Minute) // until the key is free
				}
				if n := w.events.count(EventMisconfigured) - reported; runs-ran != 2 || n != 2 {
					w.Errorf("%s, %s, key %q: %d runs, reported %d times", host.name, protocol, key, runs-ran, n)
				}
			}
		}
	}
}

// The same holds over TCP, with and without TLS. This test runs in real time.
func TestWrittenPastOverTCP(t *testing.T) {
	t.Parallel()
	m := anyKey(t)
	for name, past := range pasts {
		for _, secure := range []bool{false, true} {
			s := started(Arrived(keeps(mux(m, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/orders") {
					past(keptBy(r))
					expire(r.Context())
				}
			}))), secure)
			for _, http2 := range []bool{false, true} {
				client := clientOf(s, secure, http2)
				put := func(path string) reply {
					return replyOf(client.Do(must(http.NewRequestWithContext(t.Context(), "PUT", s.URL+path, nil))))
				}
				if got := put("/refunds/1"); !got.whole() || (got.proto == "HTTP/2.0") != http2 {
					t.Errorf("%s, TLS %v, HTTP/2 %v: %+v without a loss", name, secure, http2, got)
				}
				if got := put("/orders/1"); got.err == nil {
					t.Errorf("%s, TLS %v, HTTP/2 %v: a clean %d %q after a loss", name, secure, http2, got.status, got.body)
				}
			}
			s.Close()
		}
	}
}

// If a handler panics or ends its goroutine after it has written past its Lock, the connection is broken all the same.
func TestPanicsAfterWritingPast(t *testing.T) {
	for name, ends := range map[string]func(){
		"panic": func() { panic("wrong") }, "abort": func() { panic(http.ErrAbortHandler) }, "Goexit": runtime.Goexit,
	} {
		bubbleOf(t, name, 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"))
			for _, host := range hosts[:4] {
				s := w.serve(Arrived(keeps(host.handler(m, func(_ http.ResponseWriter, r *http.Request) {
					pasts["whole, flushed"](keptBy(r))
					expire(r.Context())
					ends()
				}))))
				for _, protocol := range protocols {
					if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.err == nil {
						w.Errorf("%s, %s: a clean %d %q", host.name, protocol, got.status, got.body)
					}
					time.Sleep(time.Minute)
				}
			}
		})
	}
}

// An error that is sent past the Lock passes or breaks the connection. It is no success, and nothing is recorded.
func TestErrorsPast(t *testing.T) {
	for _, flush := range []bool{false, true} {
		bubbleOf(t, fmt.Sprintf("flush %v", flush), 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(true, NoSender))
			for i, host := range hosts {
				runs := 0
				s := w.serve(Arrived(keeps(host.handler(m, func(_ http.ResponseWriter, r *http.Request) {
					runs++
					http.Error(keptBy(r), "failed", http.StatusConflict)
					if flush {
						flushes(keptBy(r))
					}
				}))))
				for _, protocol := range protocols {
					runs = 0
					for range 2 {
						got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", fmt.Sprint(i, protocol[5:]))
						if got.err == nil && got.status != 409 || got.header.Get("Idempotent-Replayed") != "" {
							w.Errorf("%s, %s: %+v", host.name, protocol, got)
						}
						time.Sleep(time.Second) // the client may know of the end first
					}
					if runs != 2 {
						w.Errorf("%s, %s: %d runs", host.name, protocol, runs)
					}
				}
			}
		})
	}
}

// An error that is sent past the Lock when the client has left is not recorded as what the handler wrote to its own
// writer, which is nothing.
func TestErrorPastForAClientThatLeft(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		runs := 0
		s := w.serve(Arrived(keeps(mux(m, func(_ http.ResponseWriter, r *http.Request) {
			runs++
			time.Sleep(2 * time.Second)
			http.Error(keptBy(r), "failed", http.StatusConflict)
		}))))
		for _, protocol := range protocols {
			runs = 0
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			s.do(ctx, protocol, "PUT", "/orders/1", "", "Idempotency-Key", protocol[5:])
			cancel()
			time.Sleep(time.Minute)
			got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", protocol[5:])
			if got.whole() || runs != 2 {
				w.Errorf("%s: %+v, %d runs", protocol, got, runs)
			}
		}
	})
}

// A holding writer keeps the status and the body until send is called, as middleware does that buffers.
type holding struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (h *holding) WriteHeader(status int) {
	if h.status == 0 {
		h.status = status
	}
}

func (h *holding) Write(b []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	return h.body.Write(b)
}

func (h *holding) send() {
	if h.status > 0 {
		h.ResponseWriter.WriteHeader(h.status)
		h.ResponseWriter.Write(h.body.Bytes())
	}
}

// An unwrappingHolding writer has the method Unwrap.
type unwrappingHolding struct{ *holding }

func (h unwrappingHolding) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// A ginHolding writer is a holding writer for gin.
type ginHolding struct {
	gin.ResponseWriter
	*holding
}

func (h ginHolding) Header() http.Header               { return h.holding.Header() }
func (h ginHolding) WriteHeader(status int)            { h.holding.WriteHeader(status) }
func (h ginHolding) Write(b []byte) (int, error)       { return h.holding.Write(b) }
func (h ginHolding) WriteString(s string) (int, error) { return h.holding.Write([]byte(s)) }
func (h ginHolding) WriteHeaderNow()                   {}

// holders has middlewares, by name, that hold a response back until the handler has returned, and keep the writer that
// does so in the context.
func holders() map[string]func(m *Middleware, h http.HandlerFunc) http.Handler {
	around := func(hides bool) func(m *Middleware, h http.HandlerFunc) http.Handler {
		return func(m *Middleware, h http.HandlerFunc) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				held := &holding{ResponseWriter: w}
				defer held.send()
				defer func() { _ = recover() }() // such as a middleware that logs panics
				var inner http.ResponseWriter = held
				if !hides {
					inner = unwrappingHolding{held}
				}
				keeps(mux(m, h)).ServeHTTP(inner, r)
			})
		}
	}

	inGin := func(wrap gin.HandlerFunc) func(m *Middleware, h http.HandlerFunc) http.Handler {
		return func(m *Middleware, h http.HandlerFunc) http.Handler {
			return mount(wrap, recovery, func(c *gin.Context) {
				c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), keptKey{}, c.Writer))
			}, lockOf(m), gin.WrapF(h))
		}
	}

	return map[string]func(m *Middleware, h http.HandlerFunc) http.Handler{
		"net/http":         around(true),
		"net/http, Unwrap": around(false),
		"gin, gzip":        inGin(compress),
		"gin": inGin(func(c *gin.Context) {
			held := &holding{ResponseWriter: c.Writer}
			c.Writer = ginHolding{c.Writer, held}
			defer held.send()
			c.Next()
		}),
		"http.TimeoutHandler": func(m *Middleware, h http.HandlerFunc) http.Handler {
			return http.TimeoutHandler(keeps(mux(m, h)), timeout, "late")
		},
	}
}

// If a handler writes a success to a writer that holds it back, and then loses its lease, Arrived does not let the
// success pass. Nothing is recorded. Without a loss, the client gets what the writer makes of the response.
func TestSuccessesHeldBack(t *testing.T) {
	for name, holder := range holders() {
		for _, written := range []step{
			inTurn(status(201), writes("past")),
			inTurn(status(201), func(w http.ResponseWriter) { w.Write([]byte("past")) }),
		} {
			bubbleOf(t, name, 1, func(w *world) {
				sendsAtOnce := name == "gin, gzip" // the header of gzip
				heldBack(w, holder, written, sendsAtOnce)
			})
		}
	}
}

func heldBack(w *world, holder func(*Middleware, http.HandlerFunc) http.Handler, written step, sendsAtOnce bool) {
	m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(false, NoSender))
	lose, runs := false, 0
	s := w.serve(Arrived(holder(m, func(_ http.ResponseWriter, r *http.Request) {
		runs++
		written(keptBy(r))
		if lose {
			expire(r.Context())
		}
	})))

	for _, protocol := range protocols {
		for _, key := range []string{"", "k" + protocol[5:]} {
			lose, runs = true, 0
			got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)
			if got.err == nil && got.status < 400 {
				w.Errorf("%s, key %q: a clean %d %q after a loss", protocol, key, got.status, got.body)
			}
			time.Sleep(time.Minute)

			lose = false
			got = s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)
			if !sendsAtOnce && (got.err != nil || got.status >= 300) || runs != 2 {
				w.Errorf("%s, key %q: %+v without a loss, %d runs", protocol, key, got, runs)
			}
			time.Sleep(time.Minute)
		}
	}
}

// If a middleware turns a refusal into a success, the connection is broken after a loss. Refusals of requests whose
// handlers have not run are not affected.
func TestRefusalsThatBecomeSuccesses(t *testing.T) {
	for name, makes := range map[string]func(w http.ResponseWriter, refused *holding){
		"an envelope": func(w http.ResponseWriter, refused *holding) {
			fmt.Fprintf(w, `{"status":%d,"body":%q}`, refused.status, refused.body.String())
		},
		"nothing":    func(http.ResponseWriter, *holding) {}, // the server sends 200
		"a flush":    func(w http.ResponseWriter, _ *holding) { flushes(w) },
		"a cache":    func(w http.ResponseWriter, _ *holding) { w.WriteHeader(203); io.WriteString(w, "old") },
		"a redirect": func(w http.ResponseWriter, _ *holding) { w.Header().Set("Location", "/"); w.WriteHeader(303) },
		"a file":     func(w http.ResponseWriter, _ *holding) { io.Copy(w, strings.NewReader(large)) },
		"a takeover": func(w http.ResponseWriter, _ *holding) { pasts["hijacked"](w) },
	} {
		bubbleOf(t, name, 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(false, NoSender), WithMaxWait(0))
			h := mux(m, func(rw http.ResponseWriter, r *http.Request) {
				io.WriteString(rw, "own")
				expire(r.Context())
			})
			s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				refused := &holding{ResponseWriter: httptest.NewRecorder()}
				h.ServeHTTP(refused, r)
				makes(rw, refused)
			})))

			for _, protocol := range protocols {
				if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.err == nil {
					w.Errorf("%s: a clean %d %q after a loss", protocol, got.status, got.body)
				}
				time.Sleep(time.Minute)

				if name == "a takeover" {
					continue
				}
				lease := must(w.locker.Acquire(w.Context(), routeKey("/orders/{id}", "1")))
				if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.err != nil || got.status >= 400 {
					w.Errorf("%s: %+v for a key that is held", protocol, got)
				}
				lease.Release(w.Context())
			}
		})
	}
}

// A function of WithReply that writes a success after a loss does not reach the client.
func TestReplyThatIsASuccess(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"), WithReply(func(w http.ResponseWriter, _ *http.Request, _ Refusal) {
			w.WriteHeader(200)
			io.WriteString(w, "fine")
		}))
		for _, host := range hosts {
			s := w.serve(Arrived(host.handler(m, func(_ http.ResponseWriter, r *http.Request) { expire(r.Context()) })))
			for _, protocol := range protocols {
				if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.err == nil {
					w.Errorf("%s, %s: a clean %d %q after a loss", host.name, protocol, got.status, got.body)
				}
				time.Sleep(time.Minute)
			}
		}
	})
}

// What was sent before the Lock began is broken off after a loss, also for a client of HTTP/1.0, which takes the end of
// the connection for the end of the body. Without a loss, it is whole. This test runs in real time, over TCP.
func TestBegunBeforeLock(t *testing.T) {
	t.Parallel()
	m := anyKey(t)
	h := mux(m, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/orders") {
			expire(r.Context())
		}
		io.WriteString(w, "own")
	})
	for _, secure := range []bool{false, true} {
		s := started(Arrived(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "before ")
			flushes(w)
			h.ServeHTTP(w, r)
		})), secure)
		defer s.Close()

		for _, http2 := range []bool{false, true} {
			client := clientOf(s, secure, http2)
			for path, lose := range map[string]bool{"/orders/1": true, "/refunds/1": false} {
				got := replyOf(client.Do(must(http.NewRequestWithContext(t.Context(), "PUT", s.URL+path, nil))))
				if got.whole() == lose || !lose && got.body != "before own" {
					t.Errorf("TLS %v, HTTP/2 %v, lose %v: %+v", secure, http2, lose, got)
				}
			}
		}
		if secure {
			continue
		}

		for path, lose := range map[string]bool{"/orders/1": true, "/refunds/1": false} {
			conn := must(net.Dial("tcp", s.Listener.Addr().String()))
			fmt.Fprintf(conn, "PUT %s HTTP/1.0\r\nHost: x\r\n\r\n", path)
			got := replyOf(http.ReadResponse(bufio.NewReader(conn), nil))
			conn.Close()
			if got.whole() == lose || !lose && got.body != "before own" {
				t.Errorf("HTTP/1.0, lose %v: %+v", lose, got)
			}
		}
	}
}

// A middleware that responds with a success while the handlers of a Lock run, such as one that accepts requests and runs
// them later, does not reach the client. Its errors do.
func TestAnsweredWhileTheHandlersRun(t *testing.T) {
	for _, code := range []int{0, 200, 202, 503} {
		bubbleOf(t, fmt.Sprint(code), 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"))
			begun, goOn, over := make(chan bool), make(chan bool), make(chan bool)
			h := mux(m, func(_ http.ResponseWriter, r *http.Request) {
				begun <- true
				<-goOn
				expire(r.Context())
			})

			s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				later := r.WithContext(context.WithoutCancel(r.Context()))
				go func() { defer func() { _ = recover(); over <- true }(); h.ServeHTTP(httptest.NewRecorder(), later) }()
				<-begun
				if code > 0 {
					rw.WriteHeader(code)
				}
			})))
			for _, protocol := range protocols {
				got := s.do(context.Background(), protocol, "PUT", "/orders/1", "")
				goOn <- true
				<-over
				if code == 503 && got.status != 503 || code != 503 && got.err == nil {
					w.Errorf("%s: %+v", protocol, got)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// The verdict of a handler that outlives its request, because http.TimeoutHandler has stopped waiting for it, does not
// touch the next request on the connection.
func TestLateVerdict(t *testing.T) {
	for _, how := range []string{"lose", "past", "lose and past"} {
		bubbleOf(t, how, 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"))
			late, next := make(chan bool), make(chan bool)
			began, over := make(chan bool), make(chan bool)
			h := mux(m, func(rw http.ResponseWriter, r *http.Request) {
				if r.PathValue("id") == "2" {
					began <- true
					<-next
					io.WriteString(rw, "second")
					return
				}
				defer close(over)
				<-late
				if strings.Contains(how, "past") {
					io.WriteString(keptBy(r), "past")
				}
				if strings.Contains(how, "lose") {
					expire(r.Context())
				}
			})
			s := w.serve(Arrived(keeps(http.TimeoutHandler(h, time.Second, "late"))))

			conn := must(s.dial())
			defer conn.Close()
			in := bufio.NewReader(conn)
			put := func(id int) {
				fmt.Fprintf(conn, "PUT /orders/%d HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", id)
			}

			put(1)
			if first := replyOf(http.ReadResponse(in, nil)); first.status != 503 || first.err != nil {
				w.Errorf("first: %+v", first)
			}
			go put(2)
			<-began
			close(late)
			<-over
			time.Sleep(500 * time.Millisecond) // the second request has time left
			close(next)
			replyOf(http.ReadResponse(in, nil)).ok(w, "second")
			time.Sleep(time.Minute)
		})
	}
}

// A handler that http.TimeoutHandler has stopped waiting for may still have an outcome. It is recorded, and a repetition
// gets it.
func TestOutcomeAfterATimeout(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		runs := 0
		s := w.serve(Arrived(http.TimeoutHandler(mux(m, func(rw http.ResponseWriter, _ *http.Request) {
			runs++
			time.Sleep(2 * time.Second)
			io.WriteString(rw, "made")
		}), time.Second, "late")))
		for _, protocol := range protocols {
			runs = 0
			put := func() reply {
				return s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", protocol[5:])
			}
			if got := put(); got.status != 503 || got.err != nil {
				w.Errorf("%s: %+v", protocol, got)
			}
			time.Sleep(time.Minute)
			if put().ok(w, "made"); runs != 1 {
				w.Errorf("%s: %d runs", protocol, runs)
			}
		}
		if n := w.events.count(EventMisconfigured); n != 0 {
			w.Errorf("misconfigured %d times", n)
		}
	})
}

// Arrived does not touch a connection after its handler has returned, because it may serve another request.
func TestArrivalThatIsOver(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var first *arrival
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if first == nil {
				first = arrivalOf(rw, r)
				return
			}

			var h hold
			h.begin(r.Context(), first, true)
			h.doom()
			_, late := first.Write([]byte("late"))
			_, _, taken := (&http1Writer{arrival{outer: first.outer, isOver: true}}).Hijack()
			if first.isLive() || first.cut() != nil || first.end() || late == nil || taken == nil {
				w.Errorf("live %v, written %v, taken over %v", first.isLive(), late, taken)
			}
			first.WriteHeader(500)
			io.WriteString(rw, "second")
		})))

		conn := must(s.dial())
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, want := range []string{"", "second", "second"} {
			go fmt.Fprintf(conn, "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
			replyOf(http.ReadResponse(in, nil)).ok(w, want)
		}
	})
}

// The ResponseWriter inside Arrived has the methods of the server's own, and no more.
func TestMethodsOfTheWriter(t *testing.T) {
	bubble(t, 1, func(w *world) {
		var own, guarded reflect.Type
		s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			own = reflect.TypeOf(rw)
			Arrived(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { guarded = reflect.TypeOf(rw) })).ServeHTTP(rw, r)
		}))
		for _, protocol := range protocols {
			s.do(context.Background(), protocol, "PUT", "/", "")
			if own.NumMethod() < 10 || guarded.NumMethod() != own.NumMethod() {
				w.Errorf("%s: %d methods, the server's writer has %d", protocol, guarded.NumMethod(), own.NumMethod())
			}
			for i := range own.NumMethod() {
				want := own.Method(i)
				got, ok := guarded.MethodByName(want.Name)
				if !ok || !alike(got.Type, want.Type) {
					w.Errorf("%s: %s: %v, want %v", protocol, want.Name, got.Type, want.Type)
				}
			}
		}
	})
}

// alike reports whether two methods have the same parameters and results.
func alike(a, b reflect.Type) bool {
	if a.NumIn() != b.NumIn() || a.NumOut() != b.NumOut() {
		return false
	}
	for i := 1; i < a.NumIn(); i++ { // 0 is the receiver
		if a.In(i) != b.In(i) {
			return false
		}
	}
	for i := range a.NumOut() {
		if a.Out(i) != b.Out(i) {
			return false
		}
	}
	return true
}

// The methods of the ResponseWriter inside Arrived do what those of the server's own do.
func TestMethodsWork(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(rw)
			hour := time.Now().Add(time.Hour)
			if err := errors.Join(control.SetReadDeadline(hour), control.SetWriteDeadline(hour), control.EnableFullDuplex()); err != nil {
				w.Error(err)
			}
			if rw.(http.CloseNotifier).CloseNotify() == nil { //nolint:staticcheck // gin requires it
				w.Error("no channel")
			}
			if p, ok := rw.(http.Pusher); ok {
				if err := p.Push("relative", nil); err == nil || !strings.Contains(err.Error(), "absolute") {
					w.Error(err)
				}
			}
			if r.URL.Path == "/hijack" {
				conn, buf, err := control.Hijack()
				if err != nil {
					w.Error(err)
					return
				}
				defer conn.Close()
				fmt.Fprint(buf, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntook")
				buf.Flush()
				if _, err := rw.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
					w.Error(err)
				}
				return
			}
			rw.Write([]byte("a"))
			flushesByController(rw)
			io.WriteString(rw, "b")
			flushes(rw)
			if from, ok := rw.(io.ReaderFrom); ok {
				from.ReadFrom(strings.NewReader("c"))
			} else {
				io.Copy(rw, strings.NewReader("c"))
			}
		})))
		for _, protocol := range protocols {
			s.do(context.Background(), protocol, "PUT", "/", "").ok(w, "abc")
			if protocol != "HTTP/2.0" {
				s.do(context.Background(), protocol, "PUT", "/hijack", "").ok(w, "took")
			}
		}
	})
}

// Around a writer that is not a server's, Arrived keeps successes back as well. The client gets an error.
func TestArrivedAroundAnUnknownWriter(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		h := Arrived(keeps(mux(m, func(_ http.ResponseWriter, r *http.Request) {
			pasts["hijacked"](keptBy(r))
			if c, ok := keptBy(r).(http.CloseNotifier); !ok || c.CloseNotify() != nil { //nolint:staticcheck // gin requires it
				w.Error("a channel")
			}
			if p, ok := keptBy(r).(http.Pusher); !ok || !errors.Is(p.Push("/", nil), http.ErrNotSupported) {
				w.Error("pushed")
			}
			expire(r.Context())
		})))

		to := recorder{httptest.NewRecorder()}
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					w.Errorf("panic %v", p)
				}
			}()
			h.ServeHTTP(to, newRequest("PUT", "/orders/1"))
		}()
		if to.Code != 500 || to.Body.Len() > 0 {
			w.Errorf("%d %q", to.Code, to.Body)
		}
		time.Sleep(time.Minute)
	})
}

// A request that a handler passes to the router itself, with the context of its own, counts as a part of it. If its
// lease is lost, the whole response is broken off.
func TestRequestsInsideARequest(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		parts := mux(m, func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, r.PathValue("id"))
			if r.PathValue("id") == "3" {
				expire(r.Context())
			}
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			for id := range strings.SplitSeq(r.URL.Query().Get("ids"), ",") {
				part := httptest.NewRecorder()
				ctx := r.Context()
				if r.URL.Path == "/independent" {
					ctx = context.Background()
				}
				parts.ServeHTTP(part, newRequest("PUT", "/orders/"+id).WithContext(ctx))
				fmt.Fprintf(rw, "%d ", part.Code)
				flushes(rw) // the response has begun before the next part
			}
		})))

		for _, protocol := range protocols[1:] {
			s.do(context.Background(), protocol, "PUT", "/batch?ids=1,2", "").ok(w, "200 200 ")
			if got := s.do(context.Background(), protocol, "PUT", "/batch?ids=1,3,2", ""); got.err == nil {
				w.Errorf("%s: %+v", protocol, got)
			}
			time.Sleep(time.Minute)
			s.do(context.Background(), protocol, "PUT", "/independent?ids=1,3,2", "").ok(w, "200 503 200 ")
			time.Sleep(time.Minute)
		}
	})
}

// A connection that a middleware has taken over is not guarded: requests that come over it count as without Arrived, and
// another Arrived further in counts.
func TestTakenOver(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		inner := mux(m, func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, "own")
			if r.PathValue("id") == "2" {
				expire(r.Context())
			}
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			conn, buf, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				w.Error(err)
				return
			}
			defer conn.Close()

			for id := range 3 { // such as HTTP/2 requests of golang.org/x/net/http2/h2c
				to := httptest.NewRecorder()
				inner.ServeHTTP(to, newRequest("PUT", fmt.Sprint("/orders/", id)).WithContext(r.Context()))
				fmt.Fprintf(buf, "%d ", to.Code)
				buf.Flush()
			}
			again := false
			Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { again = arrivalOf(rw, r) != nil })).
				ServeHTTP(httptest.NewRecorder(), newRequest("PUT", "/").WithContext(r.Context()))
			fmt.Fprint(buf, again)
			buf.Flush()
		})))

		conn := must(s.dial())
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /orders/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if got := must(io.ReadAll(conn)); string(got) != "200 200 503 true" {
			w.Errorf("%q", got)
		}
		time.Sleep(time.Minute)
	})
}

// A stream of the Lock passes through Arrived while the handler writes it, and is broken off at once after a loss: the
// client does not wait for middleware further out.
func TestStreamsThroughArrived(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		lose := false
		h := mux(m, func(rw http.ResponseWriter, r *http.Request) {
			for range 3 {
				io.WriteString(rw, "event")
				flushes(rw)
				time.Sleep(time.Second) // in the time of the bubble
			}
			if lose {
				expire(r.Context())
			}
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			defer time.Sleep(time.Minute)
			defer func() { _ = recover() }()
			h.ServeHTTP(rw, r)
		})))

		for _, protocol := range protocols[1:] {
			for _, lose = range []bool{false, true} {
				began := time.Now()
				got := s.do(context.Background(), protocol, "POST", "/orders/1", "")
				if got.began.Sub(began) > 0 || got.whole() == lose || got.body != "eventeventevent" || lose && time.Since(began) > 10*time.Second {
					w.Errorf("%s, lose %v: began after %v, took %v: %+v", protocol, lose, got.began.Sub(began), time.Since(began), got)
				}
				time.Sleep(2 * time.Minute)
			}
		}
	})
}

// If a success was refused, because it was sent past the Lock, and the handler then streams, the stream is broken off,
// too.
func TestStreamAfterWritingPast(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		for _, host := range hosts {
			s := w.serve(Arrived(keeps(host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
				io.WriteString(keptBy(r), "past")
				io.WriteString(rw, "own")
				flushes(rw)
			}))))
			for _, protocol := range protocols {
				before := w.events.count(EventMisconfigured)
				got := s.do(context.Background(), protocol, "PUT", "/orders/1", "")
				time.Sleep(time.Second) // the client may know of the end first
				if got.err == nil || w.events.count(EventMisconfigured) != before+1 {
					w.Errorf("%s, %s: %+v, reported %d times", host.name, protocol, got, w.events.count(EventMisconfigured)-before)
				}
			}
		}
	})
}

// Lock finds Arrived by the Unwrap methods of writers if a middleware has replaced the context.
func TestArrivedWithoutItsContext(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			mux(m, func(_ http.ResponseWriter, r *http.Request) {
				io.WriteString(rw, "past")
				expire(r.Context())
			}).ServeHTTP(unwrapping{unwrapping{rw}}, r.WithContext(context.Background()))
		})))
		for _, protocol := range protocols {
			if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.err == nil {
				w.Errorf("%s: %+v", protocol, got)
			}
			time.Sleep(time.Minute)
		}
	})
}

// The rest of a body that is too large is not awaited: net/http still recognizes its own writer.
func TestTooLargeABodyThroughArrived(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := w.serve(Arrived(mux(middleware(w, w.locker, ByParam("id"), WithBodyLimit(1)), does(writes("ran")))))
		conn := must(s.dial())
		defer conn.Close()
		go fmt.Fprintf(conn, "PUT /orders/1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")
		res := must(http.ReadResponse(bufio.NewReader(conn), nil))
		if res.StatusCode != 413 || !res.Close {
			w.Errorf("%d, close %v", res.StatusCode, res.Close)
		}
		time.Sleep(time.Minute) // net/http waits for the client
	})
}
