package httplock

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/history"
)

// 200 requests for one order over three replicas: one at a time, and all of them served.
func TestOneAtATimeOverReplicas(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		nodes := testutil.NewNodes(t, 3)
		oneAtATime(t, func() *core.Locker { return patientLocker(t, nodes) })
	})
	t.Run("redis", func(t *testing.T) {
		servers := testutil.NewServers(t, 3)
		oneAtATime(t, func() *core.Locker {
			var clients []redis.UniversalClient
			for _, s := range servers {
				clients = append(clients, s.Client())
			}
			return lockerOn(t, clients, patient...)
		})
	})
}

func oneAtATime(t *testing.T, replica func() *core.Locker) {
	var history history.History
	var inside, most, value atomic.Int32
	var replicas []string
	for i := range 3 {
		m := middleware(t, replica(), ByParam("id"), WithMaxWait(time.Minute), WithMaxWaiters(200))
		r := router()
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			lease, _ := core.FromContext(c.Request.Context())
			who := fmt.Sprintf("replica %d, request %s", i, c.GetHeader("X-Request"))
			history.Granted("42", who, lease.FencingToken(), time.Now())
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			v := value.Load()
			inside.Add(-1)
			history.Ended("42", who, lease.FencingToken(), time.Now())
			value.Store(v + 1)
			c.String(200, "%d", v+1)
		})
		replicas = append(replicas, serve(t, r).URL)
	}
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			got := do(t.Context(), "PUT", replicas[i%3]+"/orders/42", "x", "X-Request", fmt.Sprint(i))
			if got.err != nil || got.status != 200 {
				t.Errorf("%d %s %v", got.status, got.body, got.err)
			}
		})
	}
	all.Wait()
	if most.Load() != 1 || value.Load() != 200 {
		t.Errorf("%d at a time, %d updates of 200", most.Load(), value.Load())
	}
	if err := history.Check(); err != nil {
		t.Error(err)
	}
}

// A client that goes away while it waits leaves the queue, also when nobody has read its body yet.
func TestWaiterLeavesWithItsClient(t *testing.T) {
	body := strings.Repeat("x", 10_000)
	for name, request := range map[string]string{
		"POST without body":  "POST /orders/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"POST, unread body":  "POST /orders/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n" + body,
		"POST, chunked body": "POST /orders/1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			seen := &events{}
			m := middleware(t, patientLocker(t, testutil.NewNodes(t, 1), core.WithObserver(seen.Observer())), ByParam("id"), WithMaxWait(time.Minute))
			g := newTurnstile()
			r := router()
			r.Any("/orders/:id", m.Lock, g.handle)
			s := serve(t, r)

			holder := background(func() reply { return do(t.Context(), "PUT", s.URL+"/orders/1", "") })
			<-g.runs
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			seen.UntilRunning(t, core.OpAcquire, 1)
			left := time.Now()
			conn.Close()
			seen.untilKind(t, EventGone)
			t.Logf("left after %v", time.Since(left))
			seen.UntilRunning(t, core.OpAcquire, 0)
			g.goOn <- struct{}{}
			holder().ok(t, "done")
			if len(g.runs) != 0 {
				t.Error("the handler of a client that had left has run")
			}
		})
	}
}

func TestWaitEndsInTime(t *testing.T) {
	for name, c := range map[string]struct {
		opts []Option
		ctx  func(context.Context) context.Context
		want time.Duration
	}{
		"by default": {want: 5 * time.Second},
		"by option":  {opts: []Option{WithMaxWait(700 * time.Millisecond)}, want: 700 * time.Millisecond},
		"at once":    {opts: []Option{WithMaxWait(0)}, want: 0},
		"three quarters of what the request's deadline leaves": {ctx: func(ctx context.Context) context.Context {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			context.AfterFunc(ctx, cancel)
			return ctx
		}, want: 1500 * time.Millisecond},
		"three quarters of the server's write timeout": {ctx: func(ctx context.Context) context.Context {
			return context.WithValue(ctx, http.ServerContextKey, &http.Server{WriteTimeout: 4 * time.Second})
		}, want: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				m := middleware(w, w.locker, append(c.opts, ByParam("id"))...)
				g := newTurnstile()
				r := router()
				r.PUT("/orders/:id", m.Lock, g.handle)
				holder := background(func() reply { return call(r, "PUT", "/orders/1", "") })
				<-g.runs

				ctx := context.Background()
				if c.ctx != nil {
					ctx = c.ctx(ctx)
				}
				start := time.Now()
				got := callWith(ctx, r, "PUT", "/orders/1", "body")
				got.expect(w, 409, EventBusy)
				if after, _ := strconv.Atoi(got.header.Get("Retry-After")); after < 4 || after > 10 {
					w.Errorf("Retry-After %d, the holder's lease lasts up to 10s and is renewed every third", after)
				}
				if took := time.Since(start); took != c.want {
					w.Errorf("refused after %v, want %v", took, c.want)
				}
				g.goOn <- struct{}{}
				holder().ok(w, "done")
			})
		})
	}
}

// Where no quorum answers before a request's deadline, nobody knows of a holder: the locks are what is unavailable.
func TestDeadlineWithoutQuorum(t *testing.T) {
	for name, handler := range map[string]func(w *world) gin.HandlerFunc{
		"waiting":         func(w *world) gin.HandlerFunc { return middleware(w, w.locker, ByParam("id")).Lock },
		"without waiting": func(w *world) gin.HandlerFunc { return middleware(w, w.locker, ByParam("id"), WithMaxWait(0)).Lock },
		"idempotent":      func(w *world) gin.HandlerFunc { return middleware(w, w.locker, WithIdempotency(true)).Lock },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				r := router()
				r.PUT("/orders/:id", handler(w), text("ran"))
				w.nodes[0].Hang()
				w.nodes[1].Hang()
				for _, left := range []time.Duration{20 * time.Millisecond, 3 * time.Second} {
					ctx, cancel := context.WithTimeout(context.Background(), left)
					start := time.Now()
					callWith(ctx, r, "PUT", "/orders/1", "", "Idempotency-Key", "k").expect(w, 503, EventUnavailable)
					if took := time.Since(start); took > left {
						w.Errorf("took %v, with %v left", took, left)
					}
					cancel()
				}
			})
		})
	}
}

// A body is handed on whole, whether it was read before or not.
func TestHandlerGetsTheBody(t *testing.T) {
	m := middleware(t, patientLocker(t, testutil.NewNodes(t, 1)), ByParam("id"), WithBodyLimit(1000))
	r := router()
	r.POST("/echo/:id", m.Lock, func(c *gin.Context) {
		b, err := c.GetRawData()
		if err != nil {
			t.Error(err)
		}
		c.String(200, "%d %s", len(b), b)
	})
	s := serve(t, r)
	for _, n := range []int{0, 1, 999, 1000} {
		body := strings.Repeat("b", n)
		do(t.Context(), "POST", s.URL+"/echo/1", body).ok(t, fmt.Sprintf("%d %s", n, body))
		// Chunked, so that the length is not known before.
		req, _ := http.NewRequest("POST", s.URL+"/echo/1", struct{ *strings.Reader }{strings.NewReader(body)})
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if want := int64(len(fmt.Sprint(n)) + 1 + n); res.ContentLength != want && res.ContentLength != -1 {
			t.Errorf("chunked %d: answer of %d bytes, want %d", n, res.ContentLength, want)
		}
		res.Body.Close()
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		r := router()
		r.Use(func(c *gin.Context) { c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 10) })
		r.POST("/orders/:id", m.Lock, text("ran"))
		call(r, "POST", "/orders/1", "0123456789").ok(w, "ran")
		call(r, "POST", "/orders/1", "0123456789a").expect(w, 413, EventBodyTooLarge)
	})
	seen := &events{}
	m := middleware(t, patientLocker(t, testutil.NewNodes(t, 1), core.WithObserver(seen.Observer())), ByParam("id"))
	r := router()
	r.POST("/orders/:id", m.Lock, text("ran"))
	s := serve(t, r)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /orders/1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n")
	seen.untilKind(t, EventBodyBroken)
	gone, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(gone, "POST /orders/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
	gone.Close()
	seen.Until(t, "httplock body_broken", 2)
}

// onGrant calls f when an acquisition has succeeded, before who asked hears of it.
func onGrant(f func()) core.Observer {
	return core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
		if op.Kind != core.OpAcquire {
			return ctx, nil
		}
		return ctx, func(o core.Outcome) {
			if o.Err == nil {
				f()
			}
		}
	}}
}

// A request that ends at the moment of its grant does not run, and gives the key back.
func TestLeavingAtTheMomentOfTheGrant(t *testing.T) {
	for name, kind := range map[string]core.EventKind{"client gone": EventGone, "draining": EventDraining} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				leave := func() {}
				m := middleware(w, w.replica(core.WithObserver(onGrant(func() { leave() }))), ByParam("id"))
				r := router()
				r.PUT("/orders/:id", m.Lock, func(c *gin.Context) { w.Error("the handler ran") })
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				leave = cancel
				if name == "draining" {
					leave = m.Drain
				}
				callWith(ctx, r, "PUT", "/orders/1", "").expect(w, 503, kind)
				leave = func() {}
				synctest.Wait()
				lease, err := w.locker.TryAcquire(w.Context(), routeKey("/orders/:id", "1"))
				if err != nil {
					w.Fatal(err)
				}
				lease.Release(w.Context())
			})
		})
	}
}

// An idempotent request goes on without its client once it runs; while it waits, it leaves.
func TestIdempotentRequestLeavesWithItsClient(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false), WithMaxWait(time.Hour))
		g := newTurnstile()
		r := router()
		r.PUT("/orders/:id", m.Lock, g.handle)
		holder := background(func() reply { return call(r, "PUT", "/orders/1", "") })
		<-g.runs
		ctx, hangUp := context.WithCancel(context.Background())
		waiter := background(func() reply { return callWith(ctx, r, "PUT", "/orders/1", "", "Idempotency-Key", "k") })
		synctest.Wait()
		hangUp()
		waiter().expect(w, 503, EventGone)
		g.goOn <- struct{}{}
		holder().ok(w, "done")
		g.goOn <- struct{}{}
		call(r, "PUT", "/orders/1", "", "Idempotency-Key", "k").ok(w, "done")
	})
}
