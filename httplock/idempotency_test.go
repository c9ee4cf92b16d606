package httplock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A shop is a route with an effect, on some replicas.
type shop struct {
	payments atomic.Int32
	status   int
	before   gin.HandlerFunc // runs before the effect
}

func (s *shop) replica(t testing.TB, locks *core.Locker, opts ...Option) (*gin.Engine, *Middleware) {
	m := middleware(t, locks, append([]Option{WithIdempotency(false)}, opts...)...)
	r := router()
	r.POST("/orders/:id/payments", m.Lock, s.handle)
	return r, m
}

func (s *shop) handle(c *gin.Context) {
	if s.before != nil {
		s.before(c)
	}
	n := s.payments.Add(1)
	c.Header("Location", fmt.Sprintf("/payments/%d", n))
	c.Header("Set-Cookie", "session=secret")
	c.JSON(s.status, gin.H{"payment": n})
}

const path = "/orders/1/payments"

func pay(r http.Handler, key string, more ...string) reply {
	return call(r, "POST", path, `{"amount":1}`, append([]string{"Idempotency-Key", key}, more...)...)
}

func (s *shop) expect(t testing.TB, payments int) {
	t.Helper()
	if n := int(s.payments.Load()); n != payments {
		t.Errorf("%d payments, want %d", n, payments)
	}
}

func TestReplay(t *testing.T) {
	for _, status := range []int{201, 400, 409, 500, 502} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, 1, func(w *world) { replays(w, status) }) // with more, the guard touches idle nodes all day long
		})
	}
}

func replays(w *world, status int) {
	s := &shop{status: status}
	one, _ := s.replica(w, w.locker)
	other, _ := s.replica(w, w.replica())

	first := pay(one, `"k1"`)
	if first.status != status || first.header.Get("Idempotent-Replayed") != "" || first.header.Get("Set-Cookie") == "" {
		w.Errorf("%+v", first)
	}
	for _, again := range []reply{pay(other, `"k1"`), pay(one, `"k1"`), pay(one, `k1`)} {
		again.replays(w, first)
		if again.header.Get("Set-Cookie") != "" {
			w.Error("a cookie was recorded")
		}
	}
	s.expect(w, 1)
	pay(one, `"k2"`)
	call(one, "POST", path, "")
	call(one, "POST", path, "")
	s.expect(w, 4)

	time.Sleep(24*time.Hour + time.Second) // of the bubble
	pay(one, `"k1"`)
	s.expect(w, 5)
}

// replays checks that r is first once more.
func (r reply) replays(t testing.TB, first reply) {
	t.Helper()
	if r.status != first.status || r.body != first.body || r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"Location", "Content-Type"} {
		if r.header.Get(name) != first.header.Get(name) {
			t.Errorf("%s: %q", name, r.header.Get(name))
		}
	}
}

func TestIdempotencyKeyOfAnotherRequest(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := &shop{status: 201}
		r, _ := s.replica(w, w.locker, WithTenant(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }))
		send := func(path, body, tenant string) reply {
			return call(r, "POST", path, body, "Idempotency-Key", "k", "X-Tenant", tenant)
		}
		send(path, "a", "acme")
		send(path, "b", "acme").expect(w, 422, EventIdempotencyMismatch)
		send(path+"?x=1", "a", "acme").expect(w, 422, EventIdempotencyMismatch)
		send("/orders/2/payments", "a", "acme").expect(w, 422, EventIdempotencyMismatch)
		s.expect(w, 1)
		if got := send(path, "a", "other"); got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
			w.Errorf("another tenant: %+v", got)
		}
		s.expect(w, 2)
	})
}

func TestIdempotencyInFlight(t *testing.T) {
	bubble(t, 3, func(w *world) {
		g := newTurnstile()
		s := &shop{status: 201, before: func(c *gin.Context) { g.runs <- c; <-g.goOn }}
		one, _ := s.replica(w, w.locker)
		other, _ := s.replica(w, w.replica())
		first := background(func() reply { return pay(one, "k") })
		<-g.runs
		time.Sleep(time.Minute) // the lease is renewed
		pay(one, "k").expect(w, 409, EventIdempotencyInFlight)
		pay(other, "k").expect(w, 409, EventIdempotencyInFlight)
		g.goOn <- struct{}{}
		first()
		if got := pay(other, "k"); got.status != 201 || got.header.Get("Idempotent-Replayed") != "true" {
			w.Errorf("%+v", got)
		}
		s.expect(w, 1)
	})
}

func TestIdempotencyKeysThatAreNone(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := &shop{status: 201}
		r, _ := s.replica(w, w.locker, WithIdempotency(true), WithBodyLimit(100))
		call(r, "POST", path, "").expect(w, 400, EventIdempotencyKey)
		for _, key := range []string{"", `""`, `"`, `"a`, `a"`, `"a"b"`, `"a\"`, `"a\x"`, "a b", "a,b", "a\tb", "é", `"é"`, "a\x7f",
			strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`, strings.Repeat("k", 100_000), `"a";p=1`} {
			pay(r, key).expect(w, 400, EventIdempotencyKey)
		}
		pay(r, "a", "Idempotency-Key", "b").expect(w, 400, EventIdempotencyKey)
		call(r, "POST", path, strings.Repeat("x", 101), "Idempotency-Key", "k").expect(w, 413, EventBodyTooLarge)
		s.expect(w, 0)
		for i, key := range []string{strings.Repeat("k", 255), `"` + strings.Repeat("k", 254) + `"`, `"a b,\"\\"`, "8e03978e-40d5-43dd-bc93-6894a57f9324", "{k}:*"} {
			pay(r, key)
			s.expect(w, i+1)
		}
	})
}

// What is no outcome of the handler's is not recorded: refusals, panics, lost leases.
func TestNotRecorded(t *testing.T) {
	bubble(t, 1, func(w *world) {
		s := &shop{status: 201}
		var before func(c *gin.Context)
		s.before = func(c *gin.Context) {
			if before != nil {
				before(c)
			}
		}
		r, _ := s.replica(w, w.locker, ByParam("id"), WithMaxWait(0))
		lease, err := w.locker.Acquire(w.Context(), routeKey("/orders/:id/payments", "1"))
		if err != nil {
			w.Fatal(err)
		}
		pay(r, "k").expect(w, 409, EventBusy)
		lease.Release(w.Context())
		if got := pay(r, "k"); got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
			w.Errorf("after a refusal: %+v", got)
		}
		s.expect(w, 1)

		before = func(*gin.Context) { panic("a bug") }
		if got := pay(r, "panics"); got.status != 500 {
			w.Errorf("%+v", got)
		}
		before = nil
		if got := pay(r, "panics"); got.status != 201 {
			w.Errorf("after a panic: %+v", got)
		}
		s.expect(w, 2)

		before = func(*gin.Context) { w.nodes[0].Flush() } // forgets the leases
		pay(r, "lost").expect(w, 503, EventLost)
		before = nil
		if got := pay(r, "lost"); got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
			w.Errorf("after a loss: %+v", got)
		}
	})
}

// What the nodes refuse to record, because the lease was lost, is no outcome either.
func TestRecordRefused(t *testing.T) {
	bubble(t, 1, func(w *world) {
		other := w.replica()
		var usurper *core.Lease
		s := &shop{status: 201, before: func(*gin.Context) {
			w.nodes[0].Flush() // the node forgets the lease, and grants the key again
			var err error
			if usurper, err = other.Acquire(w.Context(), onceKey("POST", "/orders/:id/payments", "k")); err != nil {
				w.Error(err)
			}
		}}
		r, _ := s.replica(w, w.locker)
		pay(r, "k").expect(w, 503, EventLost)
		usurper.Release(w.Context())
		s.before = nil
		if got := pay(r, "k"); got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
			w.Errorf("%+v", got)
		}
	})
}

// A replica that dies in mid-handler leaves its key taken until the lease is over; then a repetition runs.
func TestCrashInMidHandler(t *testing.T) {
	bubble(t, 3, func(w *world) {
		dying := newReplica(w, w.nodes)
		s := &shop{status: 201, before: func(*gin.Context) { dying.Link.Kill(); panic(http.ErrAbortHandler) }}
		one, _ := s.replica(w, dying.Locker)
		survivor := &shop{status: 201}
		other, _ := survivor.replica(w, w.locker)

		start := time.Now()
		pay(one, "k")
		pay(other, "k").expect(w, 409, EventIdempotencyInFlight)
		for {
			got := pay(other, "k")
			if got.status == 201 {
				break
			}
			got.expect(w, 409, EventIdempotencyInFlight)
			time.Sleep(time.Second)
		}
		if took := time.Since(start); took < 9*time.Second || took > 12*time.Second {
			w.Errorf("taken over after %v, the lease lasts 10s", took)
		}
		if got := pay(other, "k"); got.header.Get("Idempotent-Replayed") != "true" {
			w.Errorf("%+v", got)
		}
		survivor.expect(w, 1)
	})
}

// The client that repeats is the one that had gone: its first request must have come to its end.
func TestIdempotentRequestOutlivesItsClient(t *testing.T) {
	seen := &events{}
	running, goOn := make(chan struct{}, 1), make(chan struct{})
	s := &shop{status: 201, before: func(c *gin.Context) {
		running <- struct{}{}
		<-goOn
		if err := c.Request.Context().Err(); err != nil {
			t.Errorf("the context ended with the client: %v", err)
		}
	}}
	r, _ := s.replica(t, patientLocker(t, testutil.NewNodes(t, 1), core.WithObserver(seen.Observer())), ByParam("id"))
	noticed := make(chan struct{}, 2) // also of the second request's end
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		context.AfterFunc(req.Context(), func() { noticed <- struct{}{} })
		r.ServeHTTP(w, req)
	}))
	ctx, hangUp := context.WithCancel(t.Context())
	first := background(func() reply { return do(ctx, "POST", server.URL+path, "x", "Idempotency-Key", "k") })
	<-running
	hangUp()
	first()
	<-noticed // net/http has seen it
	close(goOn)
	seen.Until(t, "complete ok", 1)
	got := do(t.Context(), "POST", server.URL+path, "x", "Idempotency-Key", "k")
	if got.status != 201 || got.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v", got)
	}
	s.expect(t, 1)
}

// Where the record cannot be confirmed the answer goes out, and the record follows.
func TestRecordFollowsWhenNodesAreBack(t *testing.T) {
	bubble(t, 3, func(w *world) {
		down := func(*gin.Context) { w.nodes[0].Down(); w.nodes[1].Down() }
		s := &shop{status: 201, before: down}
		r, _ := s.replica(w, w.locker)
		if got := pay(r, "k"); got.status != 201 {
			w.Errorf("%+v", got)
		}
		if w.events.count(EventRecordOpen) != 1 {
			w.Error("not counted")
		}
		time.Sleep(5 * time.Second) // of the bubble
		w.nodes[0].Up()
		w.nodes[1].Up()
		time.Sleep(2 * time.Second)
		if got := pay(r, "k"); got.header.Get("Idempotent-Replayed") != "true" {
			w.Errorf("%+v", got)
		}
		s.expect(w, 1)
	})
}

// A record that cannot be confirmed holds up nobody's shutdown: it is tried a last time.
func TestDrainEndsRepetitionOfRecords(t *testing.T) {
	bubble(t, 3, func(w *world) {
		s := &shop{status: 201, before: func(*gin.Context) { w.nodes[0].Down(); w.nodes[1].Down() }}
		r, m := s.replica(w, w.locker)
		if got := pay(r, "k"); got.status != 201 {
			w.Errorf("%+v", got)
		}
		start := time.Now()
		if err := m.Close(w.Context()); err != nil {
			w.Error(err)
		}
		if took := time.Since(start); took > 2*time.Second {
			w.Errorf("Close took %v", took)
		}
		if w.events.count(EventRecordOpen) != 1 {
			w.Errorf("%d open", w.events.count(EventRecordOpen))
		}
	})
}

// The context of an idempotent request ends as that of any other, but not with its client.
func TestWhatEndsAnIdempotentRequest(t *testing.T) {
	around := func(end func(ctx context.Context) (context.Context, context.CancelFunc)) func(*world) gin.HandlerFunc {
		return func(*world) gin.HandlerFunc {
			return func(c *gin.Context) {
				ctx, cancel := end(c.Request.Context())
				defer cancel()
				c.Request = c.Request.WithContext(ctx)
				c.Next()
			}
		}
	}
	for name, c := range map[string]struct {
		around     func(w *world) gin.HandlerFunc
		err, cause error // of the handler's context
		status     int
	}{
		"its deadline": {around(func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}), context.DeadlineExceeded, context.DeadlineExceeded, 200},
		"not its client": {around(func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Minute, cancel)
			return ctx, cancel
		}), nil, nil, 200},
		"a Lock around it": {func(w *world) gin.HandlerFunc {
			short, err := w.locker.With(core.MaxHold(time.Minute))
			if err != nil {
				w.Fatal(err)
			}
			return middleware(w, short, ByFunc(func(*http.Request) (string, error) { return "all", nil })).Lock
		}, context.Canceled, core.ErrLost, 503},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				r := router()
				m := middleware(w, w.locker, ByParam("id"), WithIdempotency(true))
				r.PUT("/orders/:id", c.around(w), m.Lock, func(g *gin.Context) {
					ctx := g.Request.Context()
					select {
					case <-ctx.Done():
					case <-time.After(time.Hour):
					}
					if ctx.Err() != c.err || !errors.Is(context.Cause(ctx), c.cause) {
						w.Errorf("the context ended with %v, %v", ctx.Err(), context.Cause(ctx))
					}
					g.String(200, "over")
				})
				if got := call(r, "PUT", "/orders/1", "", "Idempotency-Key", "k"); got.status != c.status {
					w.Errorf("%+v", got)
				}
			})
		})
	}
}

// A key that a handler has completed takes no more requests.
func TestDone(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		r := router()
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			lease, _ := core.FromContext(c.Request.Context())
			if err := lease.Complete(c.Request.Context(), nil); err != nil {
				w.Error(err)
			}
			c.String(200, "closed")
		})
		call(r, "PUT", "/orders/1", "").ok(w, "closed")
		call(r, "PUT", "/orders/1", "").expect(w, 409, EventDone)
		synctest.Wait()
	})
}

// A request stops when either of its leases is lost, while it waits for the other and while it runs.
func TestIdempotencyKeyIsLost(t *testing.T) {
	for name, free := range map[string]time.Duration{"waiting": time.Hour, "running": time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				m := middleware(w, w.locker, ByParam("id"), WithIdempotency(true), WithMaxWait(time.Hour))
				taken, err := w.replica().Acquire(w.Context(), routeKey("/orders/:id", "1"))
				if err != nil {
					w.Fatal(err)
				}
				release := time.AfterFunc(free, func() { taken.Release(context.Background()) })
				ran := false
				r := router()
				r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
					ran = true
					ctx := c.Request.Context()
					<-ctx.Done()
					if lease, _ := core.FromContext(ctx); lease.Context().Err() != nil || !errors.Is(context.Cause(ctx), core.ErrLost) {
						w.Errorf("the resource's lease: %v; the handler's context: %v", lease.Context().Err(), context.Cause(ctx))
					}
				})
				got := background(func() reply { return call(r, "PUT", "/orders/1", "", "Idempotency-Key", "k") })
				time.Sleep(2 * time.Second) // of the bubble
				key := onceKey("PUT", "/orders/:id", "k")
				state, err := w.locker.Inspect(w.Context(), key)
				if err != nil || state.Holder == nil {
					w.Fatalf("%+v, %v", state, err)
				}
				if _, err := w.locker.Revoke(w.Context(), key, state.Holder.Token); err != nil {
					w.Error(err)
				}
				got().expect(w, 503, EventLost)
				if ran != (name == "running") {
					w.Errorf("ran: %v", ran)
				}
				if release.Stop() {
					taken.Release(context.Background())
				}
			})
		})
	}
}

// One Idempotency-Key may be used for each method of a route.
func TestIdempotencyKeyBelongsToAMethod(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true))
		r := router()
		r.POST("/orders", m.Lock, text("posted"))
		r.PUT("/orders", m.Lock, text("put"))
		for range 2 {
			call(r, "POST", "/orders", "", "Idempotency-Key", "k").ok(w, "posted")
			call(r, "PUT", "/orders", "", "Idempotency-Key", "k").ok(w, "put")
		}
	})
}
