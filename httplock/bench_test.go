package httplock

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
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

// BenchmarkAnswer is when a client has the first byte of an answer, and the last, over HTTP/1.1: of one that is kept back, of one as large
// as the buffer, and of one that the handler flushes in eight parts with work of a millisecond before each.
func BenchmarkAnswer(b *testing.B) {
	locker := realLocker(b, 1)
	part := bytes.Repeat([]byte("x"), 128<<10)
	handlers := map[string]http.HandlerFunc{
		"1kB":  func(w http.ResponseWriter, r *http.Request) { w.Write(part[:1000]) },
		"1MiB": func(w http.ResponseWriter, r *http.Request) { w.Write(bytes.Repeat(part, 8)) },
		"stream": func(w http.ResponseWriter, r *http.Request) {
			for range 8 {
				for began := time.Now(); time.Since(began) < time.Millisecond; {
					sha256.Sum256(part[:1000])
				}
				w.Write(part)
				w.(http.Flusher).Flush()
			}
		},
	}
	for _, name := range slices.Sorted(maps.Keys(handlers)) {
		m := middleware(b, locker, ByParam("id"), WithIdempotency(false))
		for way, m := range map[string]*Middleware{"bare": nil, "locked": m, "idempotent": m} {
			b.Run(name+"/"+way, func(b *testing.B) {
				s := serve(b, hosts[0].handler(m, handlers[name]))
				var first, last time.Duration
				for b.Loop() {
					req, _ := http.NewRequest("PUT", s.URL+"/orders/1", nil)
					if way == "idempotent" {
						req.Header.Set("Idempotency-Key", fmt.Sprint(time.Now().UnixNano()))
					}
					began := time.Now()
					res, err := s.Client().Do(req)
					if err != nil {
						b.Fatal(err)
					}
					io.ReadFull(res.Body, make([]byte, 1))
					first += time.Since(began)
					if n, err := io.Copy(io.Discard, res.Body); err != nil || n < 999 || res.StatusCode != 200 {
						b.Fatal(res.Status, n, err)
					}
					last += time.Since(began)
					res.Body.Close()
				}
				b.ReportMetric(float64(first.Microseconds())/float64(b.N), "first-µs/op")
				b.ReportMetric(float64(last.Microseconds())/float64(b.N), "last-µs/op")
			})
		}
	}
}
