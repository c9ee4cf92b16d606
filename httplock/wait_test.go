package httplock

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/testutil"
)

// between checks that something took a time between least and most.
func between(w *world, what string, took, least, most time.Duration) {
	w.Helper()
	if took < least || took > most {
		w.Errorf("%s: took %v, want %v to %v", what, took, least, most)
	}
}

// A request with an Idempotency-Key waits out an outage, as any other request. If the outage ends in time, the request
// runs. Otherwise it gets 503 when its time to wait is over.
func TestRequestsWithAKeyWaitOutAnOutage(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		for _, how := range []string{"down", "hang"} {
			for _, byID := range []bool{false, true} {
				bubbleOf(t, fmt.Sprintf("%d nodes, %s, resource %v", nodes, how, byID), nodes, func(w *world) {
					opts := []Option{WithIdempotency(true, NoSender)}
					if byID {
						opts = append(opts, ByParam("id"))
					}

					m := middleware(w, w.locker, opts...)
					h := mount(m.Lock, text("ran"))
					call(h, "PUT", "/orders/1", "", "Idempotency-Key", "before").ok(w, "ran")

					outage := func(lasts time.Duration) {
						for _, n := range w.nodes[:nodes/2+1] {
							if how == "down" {
								n.Down()
							} else {
								n.Hang()
							}
							time.AfterFunc(lasts, n.Up)
						}
					}

					outage(2 * time.Second)
					began := time.Now()
					call(h, "PUT", "/orders/1", "", "Idempotency-Key", "short").ok(w, "ran")
					between(w, "an outage of 2 s", time.Since(began), 2*time.Second, 4*time.Second)
					time.Sleep(time.Minute)

					outage(time.Minute)
					began = time.Now()
					call(h, "PUT", "/orders/1", "", "Idempotency-Key", "long").expect(w, 503, EventUnavailable)
					between(w, "a long outage", time.Since(began), 4800*time.Millisecond, 5100*time.Millisecond)
					began = time.Now()
					call(mount(with(m, WithMaxWait(0)).Lock), "PUT", "/orders/1", "", "Idempotency-Key", "none").expect(w, 503, EventUnavailable)
					between(w, "no wait", time.Since(began), 0, 1100*time.Millisecond)
					time.Sleep(2 * time.Minute)
				})
			}
		}
	}
}

// During an outage, a request waits until its time to wait is over, even if that is longer than the TTL, after which a
// wait of core for a quorum ends.
func TestOutagesThatAreLongerThanTheTTL(t *testing.T) {
	for _, key := range []string{"", "k"} {
		bubbleOf(t, fmt.Sprintf("key %q", key), 3, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender), WithMaxWait(5*ttl))
			h := mount(m.Lock, text("ran"))

			put := func(key string) reply {
				if key == "" {
					return call(h, "PUT", "/orders/1", "")
				}
				return call(h, "PUT", "/orders/1", "", "Idempotency-Key", key)
			}

			for _, outage := range []time.Duration{3 * ttl, time.Hour} {
				for _, n := range w.nodes[:2] {
					n.Hang()
					time.AfterFunc(outage, n.Up)
				}

				began := time.Now()
				if outage < 5*ttl {
					put(key).ok(w, "ran")
					between(w, "an outage", time.Since(began), outage, outage+ttl)
				} else {
					put(strings.Repeat(key, 2)).expect(w, 503, EventUnavailable)
					between(w, "a long outage", time.Since(began), 5*ttl, 5*ttl+time.Second)
				}
				time.Sleep(time.Minute)
			}
			time.Sleep(time.Hour)
		})
	}
}

// A repetition that comes while the first request runs does not wait. During an outage, the wait of a request with an
// Idempotency-Key ends by three quarters of its deadline, when its client leaves, and when the server drains.
func TestWhatEndsTheWaitOfARequestWithAKey(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender), WithMaxWait(time.Hour))
		g := newTurnstile()
		h := mount(m.Lock, g.handle)

		first := background(func() reply { return call(h, "PUT", "/orders/1", "", "Idempotency-Key", "k") })
		<-g.runs

		began := time.Now()
		call(h, "PUT", "/orders/1", "", "Idempotency-Key", "k").expect(w, 409, EventIdempotencyInFlight)
		between(w, "a repetition", time.Since(began), 0, 0)

		g.goOn <- struct{}{}
		first().ok(w, "done")

		w.nodes[0].Down()

		ended := func(ctx context.Context) reply {
			req := newRequest("PUT", "/orders/1").WithContext(ctx)
			req.Header.Set("Idempotency-Key", "another")
			return serveWith(h, req)
		}

		short, cancel := context.WithTimeout(context.Background(), 8*time.Second)
		defer cancel()
		began = time.Now()
		ended(short).expect(w, 503, EventUnavailable)
		between(w, "a deadline of 8 s", time.Since(began), 5900*time.Millisecond, 6*time.Second)

		gone, leave := context.WithCancel(context.Background())
		time.AfterFunc(3*time.Second, leave)
		began = time.Now()
		ended(gone).expect(w, 503, EventGone)
		between(w, "a client that left after 3 s", time.Since(began), 3*time.Second, 3*time.Second)

		time.AfterFunc(3*time.Second, m.Drain)
		began = time.Now()
		ended(context.Background()).expect(w, 503, EventDraining)
		between(w, "a drain after 3 s", time.Since(began), 3*time.Second, 3*time.Second)
		w.nodes[0].Up()
	})
}

// The server's WriteTimeout begins when a request arrives. With Arrived, a request waits less if a middleware further
// out was slow, so that the client gets its refusal. Without Arrived, the time counts from Lock.
func TestWaitCountsFromTheArrival(t *testing.T) {
	for _, arrived := range []bool{false, true} {
		for _, once := range []bool{false, true} {
			bubbleOf(t, fmt.Sprintf("Arrived %v, once %v", arrived, once), 1, func(w *world) {
				m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender), WithMaxWait(time.Minute))
				h := mount(func(c *gin.Context) {
					time.Sleep(7 * time.Second) // such as an authentication by another service
					c.Next()
				}, m.Lock, text("ran"))
				if arrived {
					h = Arrived(h)
				}

				s := w.serveWith(&http.Server{Handler: h, WriteTimeout: 10 * time.Second})
				lease := must(w.locker.Acquire(w.Context(), routeKey(hostPath, "1")))
				key := ""
				if once {
					key = "k"
				}

				for _, protocol := range protocols {
					began := time.Now()
					got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", key)

					if !arrived {
						if got.err == nil {
							w.Errorf("%s: %d: the connection holds; is Arrived needed?", protocol, got.status)
						}
						time.Sleep(time.Minute)
						continue
					}
					got.expect(w, 409, EventBusy)
					// 7 s before Lock, and three quarters of the rest.
					between(w, protocol, time.Since(began), 9200*time.Millisecond, 9400*time.Millisecond)
				}
				lease.Release(w.Context())
			})
		}
	}
}

// If middlewares further out have used up the whole time, a request does not wait at all.
func TestNoTimeLeftToWait(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
		h := Arrived(mount(func(c *gin.Context) { time.Sleep(time.Minute); c.Next() }, m.Lock, text("ran")))
		lease := must(w.locker.Acquire(w.Context(), routeKey(hostPath, "1")))
		ctx := context.WithValue(context.Background(), http.ServerContextKey, &http.Server{WriteTimeout: 10 * time.Second})
		for _, key := range []string{"", "k"} {
			req := newRequest("PUT", "/orders/1").WithContext(ctx)
			if key != "" {
				req.Header.Set("Idempotency-Key", key)
			}
			began := time.Now()
			if got := serveWith(h, req); got.status != 409 && got.status != 503 {
				w.Errorf("%+v", got)
			}
			between(w, "the wait", time.Since(began), time.Minute, time.Minute+2*time.Millisecond)
		}
		lease.Release(w.Context())
	})
}

// If the lease of an Idempotency-Key is lost while its request waits, the refusal says that nothing was done, and when
// to try again.
func TestLossWhileWaiting(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(true, NoSender), WithMaxWait(time.Minute))
		runs := 0
		h := mount(m.Lock, func(c *gin.Context) { runs++; c.String(200, "ran") })

		holder := must(w.locker.Acquire(w.Context(), routeKey(hostPath, "1")))
		waiting := background(func() reply { return call(h, "PUT", "/orders/1", "", "Idempotency-Key", "k") })
		synctest.Wait()

		state := must(w.locker.Inspect(w.Context(), onceKey("PUT", hostPath, "k", "1")))
		if state.Holder == nil {
			w.Fatal("the request does not wait with the lease of its key")
		}
		_ = must(admin.Revoke(w.Context(), w.locker, onceKey("PUT", hostPath, "k", "1"), state.Holder.Token))

		got := waiting()
		got.expect(w, 503, EventLost)
		if !strings.Contains(got.body, "Nothing was done") || strings.Contains(got.body, "Find out") || got.header.Get("Retry-After") != "1" {
			w.Errorf("%s, Retry-After %q", got.body, got.header.Get("Retry-After"))
		}

		holder.Release(w.Context())
		time.Sleep(2 * ttl) // a revoked key is in a cooldown
		call(h, "PUT", "/orders/1", "", "Idempotency-Key", "k").ok(w, "ran")

		if runs != 1 {
			w.Errorf("%d runs", runs)
		}
	})
}

// A key that an operator has revoked is in a cooldown, and no request works on it. The refusal says so, and for how
// long.
func TestKeysThatRest(t *testing.T) {
	bubble(t, 1, func(w *world) {
		byID := middleware(w, w.holding(), ByParam("id"))
		once := middleware(w, w.holding(), WithIdempotency(true, NoSender))
		r := router()
		r.PUT("/orders/:id", byID.Lock, text("ran"))
		r.PUT("/payments/:id", once.Lock, text("ran"))

		for path, c := range map[string]struct {
			key  string
			kind core.EventKind
		}{
			"/orders/1":   {routeKey("/orders/:id", "1"), EventBusy},
			"/payments/1": {onceKey("PUT", "/payments/:id", "k", "1"), EventIdempotencyInFlight},
		} {
			holder := must(w.locker.Acquire(w.Context(), c.key))
			_ = must(admin.Revoke(w.Context(), w.locker, c.key, holder.FencingToken()))

			got := call(r, "PUT", path, "", "Idempotency-Key", "k")
			got.expect(w, 409, c.kind)

			after := got.header.Get("Retry-After")
			if !strings.Contains(got.body, "the key rests for "+after+"s") || strings.Contains(got.body, "nother request") || strings.Contains(got.body, "is under way") {
				w.Errorf("%s, Retry-After %q", got.body, after)
			}

			time.Sleep(2 * ttl)
			call(r, "PUT", path, "", "Idempotency-Key", "k").ok(w, "ran")
		}
	})
}

// If the reply of a node and the releases after it are lost, an attempt of the request itself holds the key until its
// lease is over. That does not count as another request: the request waits, and runs if it may wait long enough.
func TestATryThatWasNotAnsweredIsNoOtherRequest(t *testing.T) {
	for _, wait := range []time.Duration{3 * time.Second, time.Minute} {
		bubbleOf(t, wait.String(), 1, func(w *world) {
			m := middleware(w, w.locker, WithIdempotency(true, NoSender), WithMaxWait(wait))
			h := mount(m.Lock, text("ran"))
			call(h, "PUT", "/orders/1", "", "Idempotency-Key", "before").ok(w, "ran")

			began, first := time.Now(), true
			var mu sync.Mutex
			w.nodes[0].OnRequest(func([]string) (a testutil.Action) {
				mu.Lock()
				defer mu.Unlock()
				if first {
					first, a.DropReply = false, true
				} else if time.Since(began) < 2*time.Second {
					a.DropRequest = true
				}
				return a
			})

			got := call(h, "PUT", "/orders/1", "", "Idempotency-Key", "k")
			if wait <= ttl && got.status != 200 { // a release may have arrived in the last second
				got.expect(w, 503, EventUnavailable)
			} else {
				got.ok(w, "ran")
			}

			w.nodes[0].OnRequest(nil)
			time.Sleep(time.Minute)
		})
	}
}

// If there are several Arrived, the outermost one counts, because it was called first.
func TestOutermostArrived(t *testing.T) {
	bubble(t, 1, func(w *world) {
		began := time.Now()
		h := Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			Arrived(http.HandlerFunc(func(inner http.ResponseWriter, r *http.Request) {
				if at := arrivalOf(inner, r).at; !at.Equal(began) || inner != rw {
					w.Errorf("arrived after %v", at.Sub(began))
				}
			})).ServeHTTP(rw, r)
		}))
		call(h, "PUT", "/", "")
	})
}
