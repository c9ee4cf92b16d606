package httplock

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/history"
)

// 200 requests for one order over three replicas on real servers: one at a time, and all of them served.
func TestOneAtATimeOverReplicas(t *testing.T) {
	servers := testutil.NewServers(t, 3)
	replica := func() *core.Locker {
		var clients []redis.UniversalClient
		for _, s := range servers {
			clients = append(clients, s.Client())
		}
		return lockerOn(t, clients, patient...)
	}
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
	seen.Until(t, "httplock body_broken", 1)
	gone, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(gone, "POST /orders/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
	gone.Close()
	seen.Until(t, "httplock body_broken", 2)
}
