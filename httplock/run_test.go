package httplock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// lossy is a server over TCP whose lease is lost within three seconds when its node hangs.
func lossy(t *testing.T, handler gin.HandlerFunc, opts ...Option) (*httptest.Server, *testutil.Node, *events) {
	nodes := testutil.NewNodes(t, 1)
	seen := &events{}
	m := middleware(t, newLocker(t, nodes, core.TTL(4*time.Second), core.WithClockWindow(400*time.Millisecond), core.WithObserver(seen.Observer())), append(opts, ByParam("id"))...)
	r := gin.New()
	r.Use(gin.Logger(), gin.Recovery())
	r.PUT("/orders/:id", m.Lock, handler)
	s := httptest.NewUnstartedServer(r)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	t.Cleanup(nodes[0].Up)
	return s, nodes[0], seen
}

func init() { gin.DefaultWriter = io.Discard }

// untilLost makes the node hang and waits for the loss. The node goes on hanging, so that only this process
// knows of it.
func untilLost(t *testing.T, c *gin.Context, node *testutil.Node) {
	ctx := c.Request.Context()
	if lease, ok := core.FromContext(ctx); !ok || lease.FencingToken() == 0 || lease.Key() == "" {
		t.Error("no lease in the request's context")
	}
	node.Hang()
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
		t.Error("the context goes on without the lease")
	}
	if err := context.Cause(ctx); !errors.Is(err, core.ErrLost) {
		t.Errorf("cause %v", err)
	}
}

func TestLostBeforeTheFirstByte(t *testing.T) {
	var node *testutil.Node
	server, node, seen := lossy(t, func(c *gin.Context) {
		c.Header("Location", "/orders/1/made")
		c.Header("Set-Cookie", "made=1")
		untilLost(t, c, node)
		c.AbortWithStatus(500) // as a handler would that does not look at its context
		c.Writer.Flush()
		c.String(201, "made")
		if _, err := c.Writer.Write([]byte("more")); !errors.Is(err, core.ErrLost) {
			t.Errorf("writing after the loss: %v", err)
		}
	})
	got := put(server, "/orders/1")
	got.expect(t, 503, EventLost)
	if got.header.Get("Location") != "" || got.header.Get("Set-Cookie") != "" || got.header.Get("Retry-After") != "" {
		t.Errorf("headers of the handler's answer: %v", got.header)
	}
	if seen.count(EventLost) != 1 {
		t.Error("not counted")
	}
}

// After the first byte there is only one way to tell the client. gin.Recovery must not make it a clean answer.
func TestLostAfterTheFirstByte(t *testing.T) {
	for name, write := range map[string]func(c *gin.Context){
		"in net/http's buffer": func(c *gin.Context) { c.String(200, "short") },
		"on the wire":          func(c *gin.Context) { c.String(200, "short"); c.Writer.Flush() },
		"header only":          func(c *gin.Context) { c.Status(200); c.Writer.WriteHeaderNow() },
		"large":                func(c *gin.Context) { c.String(200, strings.Repeat("large", 20_000)) },
	} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(name+", "+protocol, func(t *testing.T) {
				t.Parallel()
				lostAfter(t, write, protocol)
			})
		}
	}
}

func lostAfter(t *testing.T, write func(c *gin.Context), protocol string) {
	var node *testutil.Node
	server, node, seen := lossy(t, func(c *gin.Context) {
		if c.Query("fine") != "" {
			c.String(200, "fine")
			return
		}
		write(c)
		untilLost(t, c, node)
		if _, err := c.Writer.WriteString("more"); !errors.Is(err, core.ErrLost) {
			t.Errorf("writing after the loss: %v", err)
		}
	})
	speak(server, protocol)
	if got := put(server, "/orders/1"); got.err == nil {
		t.Errorf("a clean answer: %d, %d bytes", got.status, len(got.body))
	}
	node.Up()
	seen.untilKind(t, EventAborted)
	fine := put(server, "/orders/2?fine=1")
	fine.ok(t, "fine")
	if fine.proto != protocol {
		t.Errorf("over %s, want %s", fine.proto, protocol)
	}
}

// speak has the server's client speak HTTP/1.1, if that is the protocol.
func speak(server *httptest.Server, protocol string) {
	if protocol == "HTTP/1.1" {
		server.Client().Transport.(*http.Transport).Protocols = new(http.Protocols)
		server.Client().Transport.(*http.Transport).Protocols.SetHTTP1(true)
	}
}

func TestLostWithBuffer(t *testing.T) {
	var node *testutil.Node
	server, node, _ := lossy(t, func(c *gin.Context) {
		c.String(200, "all of it")
		c.Writer.Flush()
		if !c.Writer.Written() || c.Writer.Status() != 200 || c.Writer.Size() != len("all of it") {
			t.Errorf("the handler sees written %v, %d, %d bytes", c.Writer.Written(), c.Writer.Status(), c.Writer.Size())
		}
		untilLost(t, c, node)
	}, WithBuffer(1000))
	put(server, "/orders/1").expect(t, 503, EventLost)
}

// With a buffer, the nodes have the last word, also if they take their time.
func TestBufferWaitsForTheNodes(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithBuffer(1000))
		r := router()
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			if c.Query("lose") != "" {
				w.nodes[0].Flush()                             // the node forgets the lease, and this process does not know yet
				w.nodes[0].SlowReplies(200 * time.Millisecond) // longer than an answer that is not kept back waits
			}
			c.String(201, "made")
		})
		if got := call(r, "PUT", "/orders/1", ""); got.status != 201 || got.body != "made" {
			w.Errorf("%+v", got)
		}
		call(r, "PUT", "/orders/1?lose=1", "").expect(w, 503, EventLost)
	})
}

// A handler may answer as it likes, with a buffer and without.
func TestAnswers(t *testing.T) {
	nodes := testutil.NewNodes(t, 1)
	m := middleware(t, patientLocker(t, nodes), ByParam("id"))
	r := router()
	large := strings.Repeat("0123456789", 20_000)
	for path, h := range map[string]gin.HandlerFunc{
		"/large/:id": text(large),
		"/pieces/:id": func(c *gin.Context) {
			c.Status(200)
			for range 4 {
				fmt.Fprint(c.Writer, large[:50_000])
				c.Writer.Flush()
			}
		},
		"/nothing/:id": func(c *gin.Context) {},
		"/status/:id":  func(c *gin.Context) { c.Status(204) },
		"/abort/:id":   func(c *gin.Context) { c.AbortWithStatusJSON(403, gin.H{"no": 1}) },
		"/late/:id": func(c *gin.Context) {
			if err := http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				c.String(500, "%v", err)
			}
		},
	} {
		r.PUT(path, m.Lock, h)
		r.PUT("/buffered"+path, with(t, m, WithBuffer(70_000)).Lock, h)
		r.PUT("/bare"+path, h)
	}
	s := serve(t, r)
	for _, path := range []string{"/large/1", "/pieces/1", "/nothing/1", "/status/1", "/abort/1", "/late/1"} {
		want := do(t.Context(), "PUT", s.URL+"/bare"+path, "x")
		for _, way := range []string{"", "/buffered"} {
			got := do(t.Context(), "PUT", s.URL+way+path, "x")
			if got.status != want.status || got.body != want.body || got.err != nil || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
				t.Errorf("%s: %d, %d bytes, %v; without the middleware %d, %d bytes", way+path, got.status, len(got.body), got.err, want.status, len(want.body))
			}
		}
	}
}

// A connection that the handler took over is its own.
func TestHijack(t *testing.T) {
	for _, c := range []struct {
		key  string
		opts []Option
	}{{}, {opts: []Option{WithBuffer(100)}}, {key: "k"}} {
		seen := &events{}
		m := middleware(t, patientLocker(t, testutil.NewNodes(t, 1), core.WithObserver(seen.Observer())), append(c.opts, ByParam("id"))...)
		r := router()
		r.Use(func(g *gin.Context) {
			if c.key != "" {
				m.Once(g)
			}
		})
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			conn, _, err := c.Writer.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nown")
			conn.Close()
		})
		do(t.Context(), "PUT", serve(t, r).URL+"/orders/1", "", "Idempotency-Key", c.key).ok(t, "own")
		if err := m.Close(t.Context()); err != nil || seen.count(EventRecorded) != 0 {
			t.Errorf("%d recorded, of an answer that nobody has seen; %v", seen.count(EventRecorded), err)
		}
	}
}

// However a handler ends, its key is free, and what is further out sees the request as it was.
func TestReleasedHoweverTheHandlerEnds(t *testing.T) {
	bubble(t, 3, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(0))
		buffered := with(w, m, WithBuffer(100))
		r := gin.New()
		r.Use(gin.Recovery(), func(c *gin.Context) {
			before, request := c.Writer, c.Request.Context()
			defer func() {
				if c.Writer != before || c.Request.Context() != request {
					w.Error("writer or context of the request were not put back")
				}
			}()
			c.Next()
		})
		ways := map[string]gin.HandlerFunc{
			"return": text("ran"),
			"panic":  func(c *gin.Context) { c.Writer.WriteString("half"); panic("a bug") },
			"abort":  func(c *gin.Context) { c.AbortWithStatus(400) },
			"error":  func(c *gin.Context) { c.AbortWithError(502, errors.New("no")) },
		}
		for name, h := range ways {
			r.PUT("/"+name+"/:id", m.Lock, h)
			r.PUT("/buffered/"+name+"/:id", buffered.Lock, h)
		}
		for name, status := range map[string]int{"return": 200, "panic": 200, "buffered/panic": 500, "abort": 400, "error": 502, "buffered/error": 502} {
			for range 2 { // the second finds the key free
				if got := call(r, "PUT", "/"+name+"/1", ""); got.status != status {
					w.Errorf("%s: %d, want %d", name, got.status, status)
				}
			}
		}
	})
}

// A slow node does not hold up an answer for long, and the key is given back all the same.
func TestReleaseDoesNotDelayTheAnswer(t *testing.T) {
	bubble(t, 3, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		r := router()
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			if c.Query("slow") != "" {
				for _, n := range w.nodes {
					n.SlowReplies(700 * time.Millisecond)
				}
			}
			c.String(200, "done")
		})
		call(r, "PUT", "/orders/1", "").ok(w, "done") // loads the scripts
		start := time.Now()
		call(r, "PUT", "/orders/1?slow=1", "").ok(w, "done")
		if took := time.Since(start); took != 100*time.Millisecond {
			w.Errorf("the answer took %v", took)
		}
		if err := m.Close(context.Background()); err != nil { // waits for the release
			w.Error(err)
		}
		if took := time.Since(start); took != 700*time.Millisecond {
			w.Errorf("the release took %v", took)
		}
		for _, n := range w.nodes {
			n.Up()
		}
		lease, err := w.locker.TryAcquire(w.Context(), routeKey("/orders/:id", "1"))
		if err != nil {
			w.Fatal(err)
		}
		lease.Release(w.Context())
	})
}

// A client that goes away while its handler runs ends the handler's context, and not the lease.
func TestLeaseOutlivesTheClient(t *testing.T) {
	seen := &events{}
	m := middleware(t, patientLocker(t, testutil.NewNodes(t, 1), core.WithObserver(seen.Observer())), ByParam("id"), WithMaxWait(time.Minute))
	hasty := with(t, m, WithMaxWait(50*time.Millisecond))
	running, checked, free := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := router()
	lock := func(c *gin.Context) {
		if c.Query("hasty") != "" {
			hasty.Lock(c)
			return
		}
		m.Lock(c)
	}
	r.PUT("/orders/:id", lock, func(c *gin.Context) {
		if c.Query("second") != "" {
			c.String(200, "second")
			return
		}
		defer close(checked)
		close(running)
		ctx := c.Request.Context()
		<-ctx.Done()
		lease, _ := core.FromContext(ctx)
		if context.Cause(ctx) != context.Canceled || lease.Context().Err() != nil {
			t.Errorf("the handler's context: %v; the lease's: %v", context.Cause(ctx), lease.Context().Err())
		}
		<-free
	})
	s := serve(t, r)
	ctx, hangUp := context.WithCancel(t.Context())
	first := background(func() reply { return do(ctx, "PUT", s.URL+"/orders/1", "x") })
	<-running
	hangUp()
	first()
	do(t.Context(), "PUT", s.URL+"/orders/1?second=1&hasty=1", "x").expect(t, 409, EventBusy)
	close(free)
	<-checked
	seen.UntilRunning(t, core.OpHold, 0)
	do(t.Context(), "PUT", s.URL+"/orders/1?second=2", "x").ok(t, "second")
}

// Inside a middleware that sets a deadline, the handler's context has it, and says so when it ends.
func TestTimeoutMiddlewareAround(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		r := router()
		r.Use(func(c *gin.Context) {
			ctx, cancel := context.WithTimeout(c.Request.Context(), 2*time.Second)
			defer cancel()
			c.Request = c.Request.WithContext(ctx)
			c.Next()
		})
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			ctx := c.Request.Context()
			deadline, ok := ctx.Deadline()
			<-ctx.Done()
			if !ok || time.Until(deadline) != 0 || ctx.Err() != context.DeadlineExceeded {
				w.Errorf("deadline %v %v, error %v", deadline, ok, ctx.Err())
			}
			c.String(504, "out of time")
		})
		holder := background(func() reply { return call(r, "PUT", "/orders/1", "") })
		w.events.UntilRunning(w, core.OpHold, 1)
		call(r, "PUT", "/orders/1", "").expect(w, 409, EventBusy)
		if got := holder(); got.status != 504 {
			w.Errorf("%+v", got)
		}
	})
}

// http.TimeoutHandler answers before the handlers have returned: the key is theirs until they do.
func TestTimeoutHandlerAround(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(0))
		g := newTurnstile()
		r := router()
		r.PUT("/orders/:id", m.Lock, g.handle)
		h := http.TimeoutHandler(r, time.Second, "timed out")
		if got := call(h, "PUT", "/orders/1", ""); got.status != 503 || got.body != "timed out" {
			w.Errorf("%+v", got)
		}
		call(h, "PUT", "/orders/1", "").expect(w, 409, EventBusy)
		g.goOn <- struct{}{}
		synctest.Wait() // until it is given back
		g.goOn <- struct{}{}
		call(h, "PUT", "/orders/1", "").ok(w, "done")
	})
}

// gin pools its contexts: nothing of the middleware may touch one after its request. For the race detector.
func TestPooledContexts(t *testing.T) {
	nodes := testutil.NewNodes(t, 1)
	m := middleware(t, patientLocker(t, nodes), ByParam("id"), WithMaxWait(20*time.Millisecond), WithMaxWaiters(3))
	r := router()
	r.PUT("/orders/:id", m.Once, m.Lock, func(c *gin.Context) {
		if c.Query("panic") != "" {
			panic("a bug")
		}
		c.String(200, c.Param("id")+c.Query("n"))
	})
	s := serve(t, r)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			for j := range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				if j%5 == 4 {
					time.AfterFunc(time.Duration(i*j)*20*time.Microsecond, cancel)
				}
				id := fmt.Sprint(j % 3)
				url := fmt.Sprintf("%s/orders/%s?n=%d.%d", s.URL, id, i, j)
				if j%7 == 6 {
					url += "&panic=1"
				}
				got := do(ctx, "PUT", url, "body", "Idempotency-Key", fmt.Sprintf("%d-%d", i, j))
				if got.status == 200 && got.body != fmt.Sprintf("%s%d.%d", id, i, j) {
					t.Errorf("%s answered %q", url, got.body)
				}
				cancel()
			}
		})
	}
	all.Wait()
}
