package httplock

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// A handler that panics after the loss, as httputil.ReverseProxy does when its context ends, has its connection broken, too,
// although gin.Recovery swallows the panic.
func TestPanicAfterALoss(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for name, cause := range map[string]any{"abort": http.ErrAbortHandler, "any": errors.New("canceled")} {
			t.Run(protocol+", "+name, func(t *testing.T) {
				t.Parallel()
				panicAfter(t, cause, protocol)
			})
		}
	}
}

func panicAfter(t *testing.T, cause any, protocol string) {
	var node *testutil.Node
	server, node, seen := lossy(t, func(c *gin.Context) {
		c.String(200, "half")
		c.Writer.Flush()
		untilLost(t, c, node)
		panic(cause)
	})
	speak(server, protocol)
	if got := put(server, "/orders/1"); got.err == nil {
		t.Errorf("a clean answer: %d, %q", got.status, got.body)
	}
	if n := seen.count(EventAborted); n != 1 {
		t.Errorf("counted %d times", n)
	}
}

// What was lost, and what may run again, is logged, without the key.
func TestLosesAreLogged(t *testing.T) {
	for name, c := range map[string]struct {
		handler func(w *world, c *gin.Context)
		once    bool
		opts    []Option
		want    string
	}{
		"lost":    {func(w *world, c *gin.Context) { w.lose(c.Request.Context()) }, false, nil, "its answer is dropped"},
		"aborted": {func(w *world, c *gin.Context) { c.String(200, "half"); w.lose(c.Request.Context()) }, false, nil, "its connection is broken"},
		"panic": {func(w *world, c *gin.Context) {
			c.String(200, "half")
			w.lose(c.Request.Context())
			panic(http.ErrAbortHandler)
		}, false, nil, "its connection is broken"},
		"max hold":      {func(w *world, c *gin.Context) { <-c.Request.Context().Done() }, false, []Option{WithMaxHold(time.Second)}, "its answer is dropped"},
		"once, lost":    {func(w *world, c *gin.Context) { w.lose(c.Request.Context()) }, true, nil, "its answer is dropped"},
		"once, in time": {func(w *world, c *gin.Context) {}, true, nil, ""},
		"in time":       {func(w *world, c *gin.Context) {}, false, nil, ""},
		"record open":   {func(w *world, c *gin.Context) { w.nodes[0].Down() }, true, nil, "is open"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				log := &logbook.Book{}
				l := newReplica(w, w.nodes, core.WithLogger(log.Logger()))
				w.lose = l.Lose
				m := middleware(w, l.Locker, append(c.opts, ByParam("id"))...)
				key := ""
				r := router()
				handlers := []gin.HandlerFunc{m.Lock, func(g *gin.Context) {
					lease, _ := core.FromContext(g.Request.Context())
					key = lease.Key()
					c.handler(w, g)
				}}
				if c.once {
					handlers[0] = m.Once
				}
				r.PUT("/orders/:id", handlers...)
				call(r, "PUT", "/orders/secret", "", "Idempotency-Key", "secret")
				w.nodes[0].Up()
				synctest.Wait()
				if c.want == "" {
					log.Want(w, 0, "httplock: ")
					return
				}
				log.Want(w, 1, "httplock: ")
				wantLogged(w, log, key, "level=WARN", c.want, "route=/orders/:id", "err")
			})
		})
	}
}

// Once keeps back more than it records, so that a loss is a reply.
func TestOnceKeepsBackMoreThanItRecords(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithRecordLimit(0))
		r := router()
		r.POST("/orders", m.Once, func(c *gin.Context) {
			c.String(200, strings.Repeat("x", kept))
			c.Writer.Flush()
			w.lose(c.Request.Context())
		})
		call(r, "POST", "/orders", "", "Idempotency-Key", "k").expect(w, 503, EventLost)
	})
}

// A loss that only the nodes know of breaks off an answer that was too large to be kept back, and is told of once.
func TestLossWhileRecording(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m, other := middleware(w, w.locker), w.replica()
		r := router()
		r.POST("/orders", func(c *gin.Context) {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					w.Errorf("panic %v", p)
				}
			}()
			c.Next()
		}, m.Once, func(c *gin.Context) {
			c.String(200, strings.Repeat("x", kept+1))
			w.nodes[0].Flush() // the node forgets the lease, and grants the key again
			usurper, err := other.Acquire(w.Context(), core.Key(idempotent, service, "", "POST", "/orders", "k"))
			if err != nil {
				w.Error(err)
			}
			w.Cleanup(func() { usurper.Release(context.Background()) })
		})
		call(r, "POST", "/orders", "", "Idempotency-Key", "k")
		if n := w.events.count(EventAborted); n != 1 {
			w.Errorf("counted %d times", n)
		}
	})
}
