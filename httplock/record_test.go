package httplock

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/internal/race"
)

// A repetition gets the same response. If the response did not fit into a record, or was too large to be sent, the
// repetition gets 410.
func TestReplayOfLargeAnswers(t *testing.T) {
	bubble(t, 1, func(w *world) {
		runs := 0
		r := router()
		r.POST("/large", middleware(w, w.locker, WithIdempotency(true, NoSender)).Lock, func(c *gin.Context) {
			runs++
			var n int
			fmt.Sscan(c.Query("n"), &n)
			c.Header("Link", strings.Repeat("l", len(c.Query("links"))*61<<10))
			c.String(201, strings.Repeat("x", n))
		})

		for query, omitted := range map[string]bool{
			"n=0": false, "n=60000": false, "n=61440": true, "n=16777216": true, "n=5&links=1": true,
		} {
			first := call(r, "POST", "/large?"+query, "", "Idempotency-Key", query)
			again := call(r, "POST", "/large?"+query, "", "Idempotency-Key", query)

			if first.status != 201 || first.err != nil {
				w.Errorf("%s: first %d, %d bytes", query, first.status, len(first.body))
			}

			if !omitted {
				again.replays(w, first)
				continue
			}
			again.expect(w, 410, EventIdempotencyOmitted)
			if h := again.header; h.Get("Idempotent-Replayed") != "true" || h.Get("Idempotent-Status") != "201" {
				w.Errorf("%s: again %v", query, h)
			}
		}

		call(r, "POST", "/large?n=16777217", "", "Idempotency-Key", "k").expect(w, 500, EventAnswerTooLarge)
		call(r, "POST", "/large?n=16777217", "", "Idempotency-Key", "k").expect(w, 410, EventIdempotencyOmitted)
		if runs != 6 {
			w.Errorf("%d runs", runs)
		}
	})
}

// A repetition gets the response of the first request, with bytes that are not UTF-8 and the headers that its status
// requires, but without cookies.
func TestReplayIsWhatWasSent(t *testing.T) {
	for status, header := range map[int][]string{
		200: {"X-Name", "caf\xe9"}, 206: {"Content-Range", "bytes 0-3/9"}, 404: {"Cache-Control", "no-store"},
		405: {"Allow", "GET, PUT"}, 409: {"ETag", `W/"1"`}, 422: {"Content-Encoding", "x"}, 410: {"Pragma", "no-cache"},
	} {
		bubbleOf(t, fmt.Sprint(status), 1, func(w *world) {
			s := &shop{status: status, before: func(c *gin.Context) {
				c.Writer.Header().Set(header[0], header[1])
				c.Writer.Header()["X-Two"] = []string{"1", "2"}
			}}
			r, _ := s.replica(w, w.locker)
			first := pay(r, "k")
			again := pay(r, "k")
			again.replays(w, first)
			if again.header.Get(header[0]) != header[1] || len(again.header["X-Two"]) != 2 || again.header.Get("Set-Cookie") != "" {
				w.Errorf("%q", again.header)
			}
			if first.header.Get("Cache-Control") != again.header.Get("Cache-Control") {
				w.Errorf("%q, first %q", again.header, first.header)
			}
		})
	}
}

// A repetition gets a header that a middleware further out sets from that middleware, and not from the record, unless
// the handler has overwritten it.
func TestReplayLeavesToOthersWhatIsTheirs(t *testing.T) {
	bubble(t, 1, func(w *world) {
		n := 0
		r := router()
		r.Use(func(c *gin.Context) {
			n++
			c.Header("X-Request-Id", fmt.Sprint(n))
			c.Header("X-Overwritten", "outer")
		})
		r.POST("/orders", middleware(w, w.locker, WithIdempotency(true, NoSender)).Lock, func(c *gin.Context) {
			c.Header("X-Overwritten", "inner")
			c.String(201, "made")
		})
		for _, id := range []string{"1", "2"} {
			got := call(r, "POST", "/orders", "", "Idempotency-Key", "k")
			if got.header.Get("X-Request-Id") != id || got.header.Get("X-Overwritten") != "inner" || got.body != "made" {
				w.Errorf("%+v", got)
			}
		}
	})
}

// A record that is read from the nodes is checked, because another program may have written it.
func TestRecordsThatNobodyWrites(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		r := router()
		r.POST("/orders", m.Lock, text("ran"))

		rs := &requestState{m: m, r: newRequest("POST", "/orders"), route: route{template: "/orders"}}
		rs.r.Header.Set("Idempotency-Key", "x")
		if err := rs.identify(); err != nil {
			w.Fatal(err)
		}

		for i, c := range []struct {
			record string
			status int
			kind   core.EventKind
		}{
			{"", 422, EventIdempotencyMismatch}, {strings.Repeat("x", 32), 422, EventIdempotencyMismatch},
			{string(rs.identity.fingerprint[:]) + "HTTP/1.1 banana\r\n\r\n", 500, EventMisconfigured},
			{string(rs.identity.fingerprint[:]) + "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", 500, EventMisconfigured},
		} {
			lease := must(w.locker.TryAcquire(w.Context(), onceKey("POST", "/orders", fmt.Sprint(i))))
			if err := lease.Complete(w.Context(), []byte(c.record)); err != nil {
				w.Fatal(err)
			}
			call(r, "POST", "/orders", "", "Idempotency-Key", fmt.Sprint(i)).expect(w, c.status, c.kind)
		}
	})
}

// Headers with names that begin with Idempotent- are the middleware's own. A repetition has the right ones even if the
// handler has set others, or has passed them on from a service that uses the same names.
func TestRepetitionsSayThatTheyAre(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		h := mount(m.Lock, func(c *gin.Context) {
			c.Header("Idempotent-Replayed", "false")
			c.Header("Idempotent-Status", "200")
			c.String(201, "paid")
		})
		for i := range 3 {
			got := call(h, "POST", "/orders/1", "", "Idempotency-Key", "k")
			if want := fmt.Sprint(i > 0); got.status != 201 || got.header.Get("Idempotent-Replayed") != want || i > 0 && got.header.Get("Idempotent-Status") != "" {
				w.Errorf("%+v", got)
			}
		}
	})
}

// A record does not contain the credentials of the first request.
func TestRecordsHaveNoCredentials(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := &shop{status: 201}
		r, _ := s.replica(w, w.locker)
		pay(r, "k", "Authorization", "Bearer hunter2", "Cookie", "session=hunter2", "X-Api-Key", "hunter2")
		_, err := w.locker.TryAcquire(w.Context(), onceKey("POST", "/orders/:id/payments", "k", "1"))
		op, ok := errors.AsType[*core.OpError](err)
		if !ok || op.Record == nil || strings.Contains(string(op.Record.Result), "hunter2") {
			w.Fatalf("%v", err)
		}
	})
}

// The address of the service is in neither the identity nor the fingerprint: a repetition may be sent to another host
// or port, and in absolute form. If tenants are hosts, WithTenant can return the host.
func TestAddressIsNoPartOfTheIdentity(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		n := 0
		count := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			fmt.Fprintf(w, "%d for %s", n, strings.ToLower(r.Host))
		})

		byHost := with(m, WithTenant(func(r *http.Request) (string, error) { return strings.ToLower(r.Host), nil }))
		mux := http.NewServeMux()
		mux.Handle("POST /payments", m.LockHandler(count))
		mux.Handle("POST /tenants/payments", byHost.LockHandler(count))
		mux.Handle("PUT /{path...}", m.LockHandler(count))

		for _, address := range []string{"http://shop.example:8080", "http://shop.example:8081", "http://SHOP.internal", "https://shop.example", ""} {
			call(mux, "POST", address+"/payments", "", "Idempotency-Key", "k").ok(w, "1 for shop.example:8080")
		}

		sent := "POST http://bob.example/payments?q=1 HTTP/1.1\r\nHost: bob.example\r\nIdempotency-Key: k2\r\n\r\n" // the absolute form
		serveWith(mux, must(http.ReadRequest(bufio.NewReader(strings.NewReader(sent))))).ok(w, "2 for bob.example")
		call(mux, "POST", "/payments?q=1", "", "Idempotency-Key", "k2").ok(w, "2 for bob.example")

		for _, c := range []struct{ target, want string }{
			{"http://alice.example/tenants/payments", "3 for alice.example"}, {"http://bob.example/tenants/payments", "4 for bob.example"},
			{"http://ALICE.example/tenants/payments", "3 for alice.example"},
		} {
			call(mux, "POST", c.target, "", "Idempotency-Key", "k").ok(w, c.want)
		}

		read := func(target, key string) reply {
			sent := "PUT " + target + " HTTP/1.1\r\nHost: x\r\nIdempotency-Key: " + key + "\r\n\r\n"
			return serveWith(mux, must(http.ReadRequest(bufio.NewReader(strings.NewReader(sent)))))
		}
		for i, target := range []string{"/", "/?", "/?q=1", "/a|b", "/a%7cb", "/a^b?x=|", `/a"b`, "/\u00e9", "/%61", "/a?b=http://c/d"} {
			first := read(target, fmt.Sprint("put", i))
			again := read("http://other.example:81"+target, fmt.Sprint("put", i))
			if again.ok(w, first.body); first.status != 200 {
				w.Errorf("%s: %+v", target, first)
			}
		}
	})
}

// If two mounted routers have the same pattern and see the same path, a request to one of them does not get the
// response of the other.
func TestMountedRoutersShareNoAnswer(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		mux := http.NewServeMux()
		for _, name := range []string{"/billing", "/refunds"} {
			inner := http.NewServeMux()
			inner.Handle("POST /orders/{id}", m.LockHandler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(name)) })))
			mux.Handle(name+"/", http.StripPrefix(name, inner))
		}
		for range 2 {
			call(mux, "POST", "/billing/orders/1", "", "Idempotency-Key", "k").ok(w, "/billing")
			call(mux, "POST", "/refunds/orders/1", "", "Idempotency-Key", "k").expect(w, 422, EventIdempotencyMismatch)
		}
	})
}

// A response is repeated only to a client with the same certificate, because that is a credential.
func TestReplayOnlyToTheSameCertificate(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := &shop{status: 201}
		r, _ := s.replica(w, w.locker)
		for _, c := range []struct {
			certificate string
			want        int
		}{{"alice", 201}, {"alice", 201}, {"bob", 422}, {"", 422}} {
			req := newRequest("POST", path)
			req.Header.Set("Idempotency-Key", "k")
			req.TLS = &tls.ConnectionState{}
			if c.certificate != "" {
				req.TLS.PeerCertificates = []*x509.Certificate{{Raw: []byte(c.certificate)}}
			}
			if got := serveWith(r, req); got.status != c.want {
				w.Errorf("%q: %+v", c.certificate, got)
			}
		}
		s.expect(w, 1)
	})
}

// Two of three nodes are down while a response is recorded. If they are back after 3 s, the record is made later, and
// has the whole response if that fits. Otherwise an error is logged. The log does not contain the Idempotency-Key.
func TestRecordFollows(t *testing.T) {
	for name, c := range map[string]struct {
		size        int
		up, omitted bool
	}{"fits": {50 << 10, true, false}, "omitted": {100 << 10, true, true}, "not recorded": {10, false, false}} {
		bubbleOf(t, name, 3, func(w *world) {
			log := &logbook.Book{}
			r := router()
			l := w.replica(core.WithLogger(log.Logger()), core.WithObserver(w.events.Observer()))
			r.POST("/orders", middleware(w, l, WithIdempotency(true, NoSender)).Lock, func(gc *gin.Context) {
				w.nodes[0].Down()
				w.nodes[1].Down()
				gc.String(201, strings.Repeat("x", c.size))
			})

			post := func() reply { return call(r, "POST", "/orders", "", "Idempotency-Key", "secret") }

			first := post()
			log.Want(w, 1, "level=WARN", "httplock: ", "may not be recorded", "route=/orders", "identity=")
			if first.status != 201 || len(first.body) != c.size || w.events.count(EventRecordOpen) != 1 {
				w.Errorf("first %d, %d bytes", first.status, len(first.body))
			}

			time.Sleep(3 * time.Second) // in the time of the bubble
			if c.up {
				w.nodes[0].Up()
				w.nodes[1].Up()
			}

			time.Sleep(2 * recordTimeout)
			log.Want(w, map[bool]int{false: 1, true: 0}[c.up], "level=ERROR", "httplock: ", "was not recorded")
			log.Want(w, 0, "secret")

			if c.omitted {
				post().expect(w, 410, EventIdempotencyOmitted)
			} else if c.up {
				post().replays(w, first)
			}
		})
	}
}

// A lost lease makes one warning and one event, and the response does not wait for the release of that lease.
func TestLossIsLoggedOnce(t *testing.T) {
	for _, key := range []string{"", "secret"} {
		for _, flush := range []bool{false, true} {
			bubbleOf(t, fmt.Sprintf("key %q, stream %v", key, flush), 1, func(w *world) {
				log := &logbook.Book{}
				l := newReplica(w, w.nodes, core.WithLogger(log.Logger()), core.WithObserver(w.events.Observer()))
				m := middleware(w, l.Locker, ByParam("id"), WithIdempotency(false, NoSender))

				var lost time.Time
				r := router()
				r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
					if c.String(200, "half"); flush {
						c.Writer.Flush()
					}
					l.Lose(c.Request.Context())
					w.nodes[0].SlowReplies(700 * time.Millisecond)
					lost = time.Now()
				})

				s := w.serve(r)
				got := s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/secret", "", "Idempotency-Key", key)

				limit := time.Duration(0)
				if key != "" { // the lease of the Idempotency-Key is not lost
					limit = releaseWait
				}
				if took := time.Since(lost); got.whole() || took > limit {
					w.Errorf("%+v after %v", got, took)
				}

				w.nodes[0].Up()
				synctest.Wait()
				log.Want(w, 1, "level=WARN")
				log.Want(w, 1, "level=WARN", "lease lost", "name=/orders/:id", "reason=")
				log.Want(w, 0, "secret")
				if n := w.events.count(EventLost); n != 1 {
					w.Errorf("counted %d times", n)
				}
			})
		}
	}
}

// A handler that writes nothing because its context has ended leaves no record: a repetition runs. What it says counts
// even then, and so does Record.
func TestHandlerThatGivesUp(t *testing.T) {
	deadline := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			h.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	timeoutHandler := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Second, "late") }
	silently := func(http.ResponseWriter, *http.Request) {}

	for _, c := range []struct {
		name   string
		wrap   func(http.Handler) http.Handler
		giveUp http.HandlerFunc
		runs   int64 // of two requests
	}{
		{"deadline", deadline, silently, 2},
		{"http.TimeoutHandler", timeoutHandler, silently, 2},
		{"status", deadline, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, 1},
		{"empty body", deadline, func(w http.ResponseWriter, _ *http.Request) { w.Write(nil) }, 1},
		{"flush", deadline, func(w http.ResponseWriter, _ *http.Request) { flushes(w) }, 2},
		{"flush and status", deadline, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted); flushes(w) }, 1},
		{"Record", deadline, func(_ http.ResponseWriter, r *http.Request) { Record(r) }, 1},
	} {
		for _, host := range hosts[:2] {
			bubbleOf(t, c.name+", "+host.name, 1, func(w *world) {
				m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
				var runs atomic.Int64
				h := host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
					runs.Add(1)
					<-r.Context().Done()
					c.giveUp(rw, r)
				})
				s := w.serve(Arrived(c.wrap(h)))
				for range 2 {
					s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", "k")
					time.Sleep(time.Minute)
				}
				if n := runs.Load(); n != c.runs {
					w.Errorf("%d runs, want %d", n, c.runs)
				}
			})
		}
	}
}

// A client that leaves ends the lease or the permit around Lock. A handler that writes nothing for that reason leaves no
// record.
func TestHandlerThatGivesUpAroundItsClient(t *testing.T) {
	for _, what := range []string{"lease", "permit"} {
		bubbleOf(t, what, 1, func(w *world) {
			around := w.locker.Do
			if what == "permit" {
				around = must(semaphore.New(w.locker, 2)).Do
			}
			m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
			var runs atomic.Int64
			locked := mux(m, func(rw http.ResponseWriter, r *http.Request) {
				if runs.Add(1) == 1 {
					<-r.Context().Done()
					return
				}
				io.WriteString(rw, "paid")
			})
			s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_ = around(r.Context(), "around", func(ctx context.Context) error {
					locked.ServeHTTP(rw, r.WithContext(ctx))
					return nil
				})
			})))

			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if got := s.do(ctx, "HTTP/2.0", "PUT", "/orders/1", "", "Idempotency-Key", "k"); got.err == nil {
				w.Errorf("%+v", got)
			}
			time.Sleep(time.Minute)
			s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", "k").ok(w, "paid")
		})
	}
}

// A handler may heed a context that a middleware further out has kept, which ends when the client leaves. If it writes
// nothing for that reason, there is no record.
func TestHandlerThatHeedsAContextFurtherOut(t *testing.T) {
	for _, host := range hosts[:2] {
		bubbleOf(t, host.name, 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
			type kept struct{}
			var runs atomic.Int64
			locked := host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
				if runs.Add(1) == 1 {
					<-r.Context().Value(kept{}).(context.Context).Done()
					return
				}
				io.WriteString(rw, "paid")
			})
			s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				locked.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), kept{}, r.Context())))
			})))

			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if got := s.do(ctx, "HTTP/2.0", "PUT", "/orders/1", "", "Idempotency-Key", "k"); got.err == nil {
				w.Errorf("%+v", got)
			}
			time.Sleep(time.Minute)
			s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", "k").ok(w, "paid")
		})
	}
}

// A lateContext has its deadline a moment before it ends.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// A middleware that responds if its context has ended at the deadline, as chi's Timeout does, finds that it has, although
// the context of the handler ended before.
func TestDeadlineOfAMiddleware(t *testing.T) {
	bubble(t, 1, func(w *world) {
		locked := mux(middleware(w, w.locker, ByParam("id")), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			deadline := time.Now().Add(time.Second)
			ctx, cancel := context.WithDeadline(r.Context(), deadline.Add(time.Millisecond))
			defer cancel()
			locked.ServeHTTP(rw, r.WithContext(lateContext{ctx, deadline}))
			if ctx.Err() != nil {
				rw.WriteHeader(http.StatusGatewayTimeout)
			}
		}))

		for _, protocol := range protocols {
			if got := s.do(context.Background(), protocol, "PUT", "/orders/1", ""); got.status != http.StatusGatewayTimeout {
				w.Errorf("%s: %+v", protocol, got)
			}
		}
	})
}

// In gin, a middleware further out may respond to the errors that handlers add. A handler that adds one, and writes no
// body, has no outcome.
func TestErrorsOfGin(t *testing.T) {
	for _, c := range []struct {
		name   string
		handle gin.HandlerFunc
		status int
		runs   int // of two requests
	}{
		{"error", func(c *gin.Context) { _ = c.Error(errOfHandler) }, 422, 2},
		{"error and status", func(c *gin.Context) { c.Status(409); _ = c.Error(errOfHandler) }, 422, 2},
		{"error and body", func(c *gin.Context) { c.String(200, "done"); _ = c.Error(errOfHandler) }, 200, 1},
		{"error and Record", func(c *gin.Context) { Record(c.Request); c.Status(409); _ = c.Error(errOfHandler) }, 422, 1},
		{"error and abort", func(c *gin.Context) { _ = c.AbortWithError(409, errOfHandler) }, 409, 2},
		{"error and empty body", func(c *gin.Context) { _ = c.Error(errOfHandler); c.String(409, "") }, 409, 2},
		{"error and a status without body", func(c *gin.Context) { c.Status(204); _ = c.Error(errOfHandler) }, 422, 1},
		{"error in place of a middleware's", func(c *gin.Context) { c.Errors = nil; _ = c.Error(errOfHandler) }, 422, 2},
		{"nothing", func(*gin.Context) {}, 200, 1},
	} {
		bubbleOf(t, c.name, 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
			runs := 0
			r := router()
			r.PUT("/orders/:id", func(c *gin.Context) {
				_ = c.Error(errors.New("of a middleware"))
				c.Next()
				if err := c.Errors.Last(); errors.Is(err, errOfHandler) && !c.Writer.Written() {
					c.String(http.StatusUnprocessableEntity, err.Error())
				}
			}, m.Lock, func(ctx *gin.Context) { runs++; c.handle(ctx) })
			s := w.serve(Arrived(r))

			got := s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", "k")
			if got.status != c.status {
				w.Errorf("%+v", got)
			}
			s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", "k")
			if runs != c.runs {
				w.Errorf("%d runs, want %d", runs, c.runs)
			}
		})
	}
}

var errOfHandler = errors.New("of the handler")

// Handlers learn of a loss from what they write. A middleware may show that error to clients, so it has no key.
func TestErrorOfAWriteAfterALoss(t *testing.T) {
	for _, host := range hosts[:2] {
		bubbleOf(t, host.name, 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"))
			s := w.serve(Arrived(host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
				expire(r.Context())
				_, err := io.WriteString(rw, "late")
				flushErr := http.NewResponseController(rw).Flush()
				for _, err := range []error{err, flushErr} {
					if !errors.Is(err, core.ErrLost) || strings.Contains(err.Error(), "sEcReT") {
						w.Errorf("%v", err)
					}
				}
			})))
			for _, protocol := range protocols {
				s.do(context.Background(), protocol, "PUT", "/orders/sEcReT", "").expect(w, 503, EventLost)
				time.Sleep(time.Minute)
			}
		})
	}
}

// If a lease is lost while the response is recorded, the client gets a whole refusal, which is counted once. A
// repetition runs again. The resource is released first: if its lease is lost, nothing is recorded.
func TestLossWhileRecorded(t *testing.T) {
	for name, at := range map[string]core.OpKind{"the identity, at its completion": core.OpComplete, "the resource, at its release": core.OpRelease} {
		bubbleOf(t, name, 1, func(w *world) { lossWhileRecorded(w, at) })
	}
}

// lossWhileRecorded makes requests whose leases are revoked just before they are ended by an operation of that kind.
func lossWhileRecorded(w *world, at core.OpKind) {
	o := w.events.Observer()
	o.Start = func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
		if lease, _ := core.FromContext(ctx); op.Kind == at {
			_, _ = admin.Revoke(context.WithoutCancel(ctx), w.locker, lease.Key(), lease.FencingToken())
		}
		return ctx, nil
	}
	l := newReplica(w, w.nodes, core.MaxHold(time.Hour), core.WithObserver(o))
	runs := 0
	everywhere(w, middleware(w, l.Locker, ByParam("id"), WithIdempotency(true, NoSender)), func(to http.ResponseWriter, _ *http.Request) {
		runs++
		fmt.Fprint(to, "whole")
	}, func(of string, _ host, s *server, protocol string) {
		before, ran := w.events.count(EventLost), runs
		for range 2 {
			s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", `"`+of+`"`).expect(w, 503, EventLost)
			time.Sleep(2 * ttl) // of the bubble: a key rests after a revocation
		}
		if n := w.events.count(EventLost) - before; n != 2 || runs != ran+2 {
			w.Errorf("%s: counted %d times, %d runs", of, n, runs-ran)
		}
	})
}

// A request may already run under another lease, as in a function of core.Locker.Do. If that lease is lost, the context
// of the handler ends, its response is no success, and nothing is recorded.
func TestLossOfALeaseAround(t *testing.T) {
	for _, key := range []string{"", "k"} {
		for _, flush := range []bool{false, true} {
			bubbleOf(t, fmt.Sprintf("key %q, flush %v", key, flush), 1, func(w *world) {
				locker := w.holding()
				m := middleware(w, locker, ByParam("id"), WithIdempotency(false, NoSender))

				var around *core.Lease
				within := func(c *gin.Context) {
					defer func(r *http.Request) { c.Request = r }(c.Request)
					_ = locker.Do(c.Request.Context(), "around", func(ctx context.Context) error {
						around, _ = core.FromContext(ctx)
						c.Request = c.Request.WithContext(ctx)
						c.Next()
						return nil
					})
				}

				runs := 0
				s := w.serve(mount(gin.RecoveryWithWriter(io.Discard), within, m.Lock, func(c *gin.Context) {
					runs++
					c.String(200, "half")
					if flush {
						c.Writer.Flush()
					}
					if runs%2 == 1 {
						around.Extend(1)
						<-c.Request.Context().Done()
					}
				}))

				for _, protocol := range protocols {
					for i, lost := range []bool{true, false, false} {
						if i == 2 && key == "" {
							continue
						}
						got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key+protocol[len("HTTP/"):])
						if got.whole() == lost || (got.header.Get("Idempotent-Replayed") != "") != (i == 2) {
							w.Errorf("%s, request %d: %+v", protocol, i, got)
						}
						time.Sleep(time.Minute)
					}
				}
			})
		}
	}
}

// A handler may spell the names of headers in any way. Over HTTP/2 it may also set Transfer-Encoding, which has no effect.
func TestRecordedNamesOfHeaders(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		h := does(func(rw http.ResponseWriter) {
			rw.Header()["X\x01"], rw.Header()["X\x7f"] = nil, nil
			for _, name := range []string{"set-cookie", "transfer-encoding", "idempotent-omitted", "x-own"} {
				rw.Header()[name] = []string{"chunked"}
			}
			rw.Header()["X-File"] = []string{"name\x00", "na\x7fme", "n\u00e4m\xe9"} // the server sends the last only
			io.WriteString(rw, "own")
		})
		for i, host := range hosts {
			s := w.serve(Arrived(host.handler(m, h)))
			for _, again := range []bool{false, true} {
				got := s.do(context.Background(), "HTTP/2.0", "PUT", "/orders/1", "", "Idempotency-Key", fmt.Sprint("key", i))
				got.ok(w, "own")
				isRepeated := got.header.Get("Idempotent-Replayed") == "true"
				hasCookie, isOmitted := got.header.Get("Set-Cookie") != "", got.header.Get("Idempotent-Omitted") != ""
				if file := got.header["X-File"]; len(file) != 1 || file[0] != "n\u00e4m\xe9" {
					w.Errorf("%s, again %v: %q", host.name, again, file)
				}
				if isRepeated != again || hasCookie == again || isOmitted == again || got.header.Get("X-Own") != "chunked" {
					w.Errorf("%s, again %v: %+v", host.name, again, got.header)
				}
			}
		}
	})
}

// A handler may outlive its HTTP/2 stream, because a middleware has stopped waiting for it. net/http then refuses to give
// its header. The response is recorded, and no lease is left.
func TestHandlerThatOutlivesItsStream(t *testing.T) {
	race.SkipSweep(t) // a writer of net/http is used after its end
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), WithIdempotency(true, NoSender), ByParam("id"))
		over := make(chan bool)
		h := mux(m, func(rw http.ResponseWriter, _ *http.Request) {
			time.Sleep(10 * time.Second)
			io.WriteString(rw, "own")
		})
		again := w.serve(mux(m, does(writes("again"))))
		for i, wrap := range []func(http.ResponseWriter) http.ResponseWriter{
			func(w http.ResponseWriter) http.ResponseWriter { return w },
			func(w http.ResponseWriter) http.ResponseWriter { return struct{ http.ResponseWriter }{w} },
		} {
			s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				go func() {
					defer func() { _ = recover(); over <- true }()
					h.ServeHTTP(wrap(rw), r)
				}()
				time.Sleep(5 * time.Second)
				rw.WriteHeader(http.StatusGatewayTimeout)
			}))
			for _, protocol := range protocols {
				key := fmt.Sprint(i, protocol[5:])
				if got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key); got.status != 504 {
					w.Errorf("%s: %+v", protocol, got)
				}
				<-over
				time.Sleep(time.Minute)
				again.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key).ok(w, "own")
			}
		}
	})
}

// A writer whose Header panics costs its own request, and leaves no lease.
func TestHeaderThatPanics(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), WithIdempotency(true, NoSender), ByParam("id"))
		h := mux(m, does(writes("own")))
		broken := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(&panickingHeader{ResponseWriter: rw, calls: 1}, r)
		}))
		whole := w.serve(h)
		for _, protocol := range protocols {
			broken.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", protocol[5:])
			time.Sleep(time.Minute)
			whole.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", protocol[5:]).ok(w, "own")
		}
	})
}

// A panickingHeader writer gives its header a number of times.
type panickingHeader struct {
	http.ResponseWriter
	calls int
}

func (p *panickingHeader) Header() http.Header {
	if p.calls--; p.calls < 0 {
		panic("over")
	}
	return p.ResponseWriter.Header()
}

// What a handler changes in a value of the header of a middleware further out is a part of its response, and of the
// record, and not of a refusal.
func TestHeaderThatIsChangedInPlace(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), WithIdempotency(false, NoSender), ByParam("id"))
		lose := false
		s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X-Made", "outside")
			mux(m, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header()["X-Made"][0] = "inside"
				rw.WriteHeader(200)
				rw.Header()["X-Made"][0] = "late"
				if lose {
					expire(r.Context())
				}
			}).ServeHTTP(rw, r)
		}))
		for _, protocol := range protocols {
			for _, want := range []string{"inside", "inside", "outside"} {
				lose = want == "outside"
				got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", fmt.Sprint(protocol[5:], lose))
				if got.header.Get("X-Made") != want {
					w.Errorf("%s, lose %v: %+v", protocol, lose, got)
				}
				time.Sleep(time.Minute)
			}
		}
	})
}

// A header counts in any spelling: Retry-After invites a retry, and net/http does not guess a type that the handler has
// set.
func TestSpellingsOfHeaders(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		runs := 0
		for name, c := range map[string]struct {
			h    http.HandlerFunc
			runs int
		}{
			"retry": {does(inTurn(func(w http.ResponseWriter) { w.Header()["retry-after"] = []string{"9"} }, status(409))), 2},
			"type":  {does(inTurn(func(w http.ResponseWriter) { w.Header()["content-type"] = []string{"text/own"} }, flushes, writes("own"))), 1},
		} {
			s := w.serve(mux(m, func(rw http.ResponseWriter, r *http.Request) { runs++; c.h(rw, r) }))
			for _, protocol := range protocols {
				runs = 0
				for range 2 {
					got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", name+protocol[5:])
					if name == "type" && got.header.Get("Content-Type") != "text/own" {
						w.Errorf("%s: %+v", protocol, got)
					}
					time.Sleep(time.Minute)
				}
				if runs != c.runs {
					w.Errorf("%s, %s: %d runs", name, protocol, runs)
				}
			}
		}
	})
}

// A trailer that has a value before the body is sent with its last value, as net/http sends it.
func TestTrailersThatChange(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		for _, flush := range []bool{false, true} {
			h := func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Trailer", "X-Other, X-Sum")
				rw.Header().Set("X-Sum", "0")
				io.WriteString(rw, strings.Repeat("x", 5000)) // so that net/http sends the header before
				if flush {
					flushes(rw)
				}
				rw.Header().Set("X-Sum", "42")
			}
			plain, locked := w.serve(http.HandlerFunc(h)), w.serve(mux(m, h))
			for _, protocol := range protocols[1:] {
				want := plain.do(context.Background(), protocol, "PUT", "/orders/1", "").header.Get("Trailer: X-Sum")
				got := locked.do(context.Background(), protocol, "PUT", "/orders/1", "").header.Get("Trailer: X-Sum")
				if got != want || want != "42" {
					w.Errorf("%s, flush %v: %q, want %q", protocol, flush, got, want)
				}
			}
		}
	})
}

// A header that the handler sets after it has begun the response is not sent, unless it is a trailer, even if a
// middleware sends its own header at the end. A Retry-After invites a retry even then.
func TestHeadersThatComeLate(t *testing.T) {
	for _, isTrailer := range []bool{false, true} {
		bubbleOf(t, fmt.Sprint("trailer ", isTrailer), 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
			s := w.serve(Arrived(http.TimeoutHandler(mux(m, func(rw http.ResponseWriter, _ *http.Request) {
				if isTrailer {
					rw.Header().Set("Trailer", "Retry-After")
				}
				rw.WriteHeader(http.StatusConflict)
				rw.Header().Set("Retry-After", "1")
			}), time.Hour, "late")))

			for _, key := range []string{"", "k", "k"} {
				got := s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", key)
				if got.status != 409 || hasHeader(got.header, "Retry-After") != isTrailer || hasHeader(got.header, "Idempotent-Replayed") {
					w.Errorf("key %q: %+v", key, got)
				}
			}
		})
	}
}

// If the function of WithReply writes more than can be held back, the default refusal is written.
func TestReplyThatIsTooLarge(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"), WithReply(func(w http.ResponseWriter, _ *http.Request, _ Refusal) {
			io.WriteString(w, strings.Repeat("x", 3000))
		}), func(c *config) { c.maxBuffered = 2000 })
		s := w.serve(mux(m, func(_ http.ResponseWriter, r *http.Request) { expire(r.Context()) }))
		for _, protocol := range protocols {
			s.do(context.Background(), protocol, "PUT", "/orders/1", "").expect(w, 503, EventLost)
			time.Sleep(time.Minute)
		}
	})
}
