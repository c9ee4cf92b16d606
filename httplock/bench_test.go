package httplock

import (
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// realLocker is a Locker on n redis-server processes.
func realLocker(b *testing.B, n int) *core.Locker {
	var clients []redis.UniversalClient
	for _, s := range testutil.NewServers(b, n) {
		clients = append(clients, s.Client())
	}
	return lockerOn(b, clients)
}

func benchmarkRequests(b *testing.B, r *gin.Engine, header ...string) {
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		req := httptest.NewRequest("PUT", "/orders/1", nil)
		if header != nil {
			req.Header.Set("Idempotency-Key", fmt.Sprint(i))
		}
		w := recorder{httptest.NewRecorder()}
		if r.ServeHTTP(w, req); w.Code != 200 {
			b.Fatal(w.Code, w.Body)
		}
	}
}

// BenchmarkRequest is an uncontended request: without the middleware, with it, and what of that is core's own.
func BenchmarkRequest(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		r := gin.New()
		r.PUT("/orders/:id", text("done"))
		benchmarkRequests(b, r)
	})
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("locked/nodes=%d", n), func(b *testing.B) {
			m := middleware(b, realLocker(b, n), ByParam("id"))
			r := gin.New()
			r.PUT("/orders/:id", m.Lock, text("done"))
			benchmarkRequests(b, r)
		})
		b.Run(fmt.Sprintf("idempotent/nodes=%d", n), func(b *testing.B) {
			m := middleware(b, realLocker(b, n), WithIdempotency(true))
			r := gin.New()
			r.PUT("/orders/:id", m.Lock, text("done"))
			benchmarkRequests(b, r, "Idempotency-Key")
		})
		b.Run(fmt.Sprintf("core/nodes=%d", n), func(b *testing.B) {
			l := realLocker(b, n)
			b.ReportAllocs()
			for b.Loop() {
				lease, err := l.Acquire(b.Context(), "key")
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHandOff is the time from one request's turn to the next on one key, with 100 that wait in this process.
func BenchmarkHandOff(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			m := middleware(b, realLocker(b, n), ByParam("id"), WithMaxWait(time.Minute), WithMaxWaiters(101))
			r := gin.New()
			r.PUT("/orders/:id", m.Lock, text("done"))
			var all sync.WaitGroup
			turns := make(chan struct{})
			for range 100 {
				all.Go(func() {
					for range turns {
						w := recorder{httptest.NewRecorder()}
						if r.ServeHTTP(w, httptest.NewRequest("PUT", "/orders/1", nil)); w.Code != 200 {
							b.Error(w.Code, w.Body)
						}
					}
				})
			}
			for b.Loop() {
				turns <- struct{}{}
			}
			close(turns)
			all.Wait()
		})
	}
}
