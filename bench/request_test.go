package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httplock"
	"github.com/lockkit/lockkit/testutil"
)

// BenchmarkRequest measures an uncontended request for gin on one node: without a lock, with httplock, and with the
// lock and unlock of redsync and of core around the same handler.
func BenchmarkRequest(b *testing.B) {
	gin.SetMode(gin.ReleaseMode)
	server := testutil.NewServers(b, 1)[0]
	handler := func(c *gin.Context) { c.String(200, "done") }
	run := func(name string, lock gin.HandlerFunc) {
		b.Run(name, func(b *testing.B) {
			r := gin.New()
			r.PUT("/orders/:id", lock, handler)
			b.ReportAllocs()
			for b.Loop() {
				w := writer{httptest.NewRecorder()}
				if r.ServeHTTP(w, httptest.NewRequest("PUT", "/orders/1", nil)); w.Code != 200 {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}

	locker, err := core.New([]redis.UniversalClient{server.Client()})
	if err != nil {
		b.Fatal(err)
	}
	defer locker.Close(b.Context())
	m, err := httplock.New(locker, "orders", httplock.ByParam("id"))
	if err != nil {
		b.Fatal(err)
	}
	client := server.Client()
	locks := redsync.New(goredis.NewPool(client))

	run("bare", func(c *gin.Context) { c.Next() })
	run("httplock", m.Lock)
	run("redsync", func(c *gin.Context) {
		ctx := c.Request.Context()
		mutex := locks.NewMutex("order:" + c.Param("id"))
		if err := mutex.LockContext(ctx); err != nil {
			b.Error(err)
			return
		}
		defer mutex.UnlockContext(ctx)
		c.Next()
	})
	run("core", func(c *gin.Context) {
		lease, err := locker.Acquire(c.Request.Context(), "order:"+c.Param("id"))
		if err != nil {
			b.Error(err)
			return
		}
		defer lease.Release(c.Request.Context())
		c.Next()
	})
}

// A writer is a ResponseWriter whose connection can be broken, like that of net/http.
type writer struct{ *httptest.ResponseRecorder }

func (writer) SetWriteDeadline(time.Time) error { return nil }
