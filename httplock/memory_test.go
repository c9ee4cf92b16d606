package httplock

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A request with an Idempotency-Key of its own leaves at most 4 keys and 1 kB on a node.
func TestMemoryOfARequest(t *testing.T) {
	t.Parallel()
	server := testutil.NewServers(t, 1)[0]
	client := server.Client()
	locker := must(core.New([]redis.UniversalClient{client}, patient...))
	closeAtEnd(t, "Locker", locker)
	m := middleware(t, locker, ByParam("id"), WithIdempotency(true, NoSender))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", m.LockHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":42}`)
	})))

	const requests = 50
	for i := range requests {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprint("/orders/", i), nil)
		r.Header.Set("Idempotency-Key", fmt.Sprintf("%0200d", i))
		if got := serveWith(mux, r); got.status != http.StatusCreated {
			t.Fatalf("%+v", got)
		}
	}

	keys := client.Keys(t.Context(), "lockkit:*").Val()
	bytes := 0
	for _, k := range keys {
		bytes += int(client.MemoryUsage(t.Context(), k, 0).Val())
	}

	t.Logf("%.2f keys and %d bytes of each request", float64(len(keys))/requests, bytes/requests)
	if most := 4*requests + 1; len(keys) > most || bytes/requests > 1<<10 {
		t.Errorf("%d keys and %d bytes of %d requests, want at most 4 and 1 kB of each", len(keys), bytes, requests)
	}
}

// zeros is an endless body that takes no memory.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// 500 requests with bodies of 100 KiB come one after the other, and all of them run. 4,500 more come at once. The
// bodies of the requests that run take no more memory than WithMemory allows, and the other requests are refused before
// they run.
func TestMemoryOfBodies(t *testing.T) {
	alone(t, 1, func(w *world) {
		const requests, first, size = 5000, 500, 100 << 10
		m := middleware(w, w.locker, ByParam("id"), WithMaxWaiters(requests))
		goOn := make(chan struct{})
		var running, refused, used atomic.Int64
		r := router()
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			running.Add(1)
			<-goOn
			n, _ := io.Copy(io.Discard, c.Request.Body)
			c.String(200, "%d", n)
		})

		before := heap()
		var all sync.WaitGroup
		for i := range requests {
			all.Go(func() {
				req := httptest.NewRequest("PUT", fmt.Sprint("/orders/", i), io.LimitReader(zeros{}, size))
				out := recorder{httptest.NewRecorder()}
				r.ServeHTTP(out, req)
				got := reply{status: out.Code, header: out.Header(), body: out.Body.String()}
				if got.status == 200 {
					got.ok(w, fmt.Sprint(size))
					return
				}
				got.expect(w, 503, EventOverloaded)
				refused.Add(1)
			})

			// Bodies that are read at the same time may all be half read when memory runs out.
			if i < first {
				synctest.Wait()
			}
		}

		synctest.Wait()
		used.Store(int64(heap() - before))
		if n := running.Load(); n+refused.Load() != requests || n < first || n > int64(m.memory)/size {
			w.Errorf("%d run, %d were refused", n, refused.Load())
		}
		if most := int64(m.memory) * 3 / 2; used.Load() > most {
			w.Errorf("%d MiB in use", used.Load()>>20)
		}
		w.Logf("%d run, %d MiB in use", running.Load(), used.Load()>>20)

		close(goOn)
		all.Wait()
		if n := len(m.admission.used); n != 0 {
			w.Errorf("left in use: %v", m.admission.used)
		}
	})
}

// heap returns the bytes of the heap in use. It collects twice, because pools keep their elements until the second
// collection.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Responses that are held back count for WithMemory, too. A response may exceed the limit. Meanwhile further requests
// are refused, even without bodies.
func TestMemoryOfAnswers(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithBodyLimit(1000), WithMemory(1000))
		r := router()
		s := w.serve(r) // a server that can stream
		put := func(path, body string) reply { return s.do(context.Background(), "HTTP/1.1", "PUT", path, body) }
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			if c.Param("id") == "1" {
				c.String(200, strings.Repeat("x", 2000))
				put("/orders/2", "").expect(w, 503, EventOverloaded)
				c.Writer.Flush() // the response is a stream now, and is not held back any more
				put("/orders/2", "").ok(w, "2")
			} else {
				c.String(200, "2")
			}
		})

		put("/orders/1", strings.Repeat("b", 1001)).expect(w, 413, EventBodyTooLarge)
		put("/orders/1", strings.Repeat("b", 500)).ok(w, strings.Repeat("x", 2000))

		r.PUT("/broken", with(m, WithReply(func(rw http.ResponseWriter, _ *http.Request, _ Refusal) {
			fmt.Fprint(rw, "half")
			panic("in a template")
		})).Lock)
		call(r, "PUT", "/broken", strings.Repeat("b", 1001)).expect(w, 413, EventBodyTooLarge)

		if n := len(m.admission.used); n != 0 {
			w.Errorf("left in use: %v", m.admission.used)
		}
	})
}

// A panicking writer takes the place of the writer of a middleware further out.
type panicking struct{ gin.ResponseWriter }

func (panicking) Write([]byte) (int, error) { panic("in a writer") }

// A panicking body takes the place of the body of a middleware further out, such as a decompressing one.
type panickingBody struct{ io.Reader }

func (b panickingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil {
		panic("in a body")
	}
	return n, err
}

// The memory of a request is given back in any case, also if a writer or body around the Lock panics while the body is
// read or the response is sent.
func TestMemoryIsGivenBack(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
		writes := wrapped(func(w gin.ResponseWriter) gin.ResponseWriter { return panicking{w} })
		reads := func(c *gin.Context) { c.Request.Body = io.NopCloser(panickingBody{c.Request.Body}); c.Next() }

		r := router()
		r.PUT("/writer/:id", writes, m.Lock, func(c *gin.Context) { c.String(200, "answer") })
		r.PUT("/stream/:id", writes, m.Lock, func(c *gin.Context) { c.String(200, "answer"); c.Writer.Flush() })
		r.PUT("/body/:id", reads, m.Lock, text("not reached"))

		s := w.serve(r)
		for _, path := range []string{"/writer/1", "/stream/1", "/body/1"} {
			for _, key := range []string{"", "k", "k"} {
				for _, protocol := range protocols {
					if got := s.do(context.Background(), protocol, "PUT", path, "body", "Idempotency-Key", key); got.whole() {
						w.Errorf("%s %s: %+v", protocol, path, got)
					}
				}
			}
		}

		synctest.Wait()
		if n := len(m.admission.used); n != 0 {
			w.Errorf("left in use: %v", m.admission.used)
		}
	})
}
