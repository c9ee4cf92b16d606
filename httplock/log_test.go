package httplock

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// What is logged of losses and records: the route, and the key by its hash alone.

// wantLogged demands that one line of httplock has all of parts, and none has the key.
func wantLogged(t testing.TB, log *logbook.Book, key string, parts ...string) {
	t.Helper()
	sum := sha256.Sum256([]byte(key))
	log.Want(t, 1, append(parts, "httplock: ", "key_hash="+hex.EncodeToString(sum[:8]), "token=")...)
	log.Want(t, 0, "secret")
}

func TestBrokenConnectionIsLogged(t *testing.T) {
	nodes := testutil.NewNodes(t, 1)
	t.Cleanup(nodes[0].Up)
	log, seen := &logbook.Book{}, &events{}
	m := middleware(t, newLocker(t, nodes, core.WithLogger(log.Logger()), core.TTL(4*time.Second), core.WithClockWindow(400*time.Millisecond), core.WithObserver(seen.Observer())), ByParam("id"))
	r := router()
	r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
		c.String(200, "begun")
		c.Writer.Flush()
		untilLost(t, c, nodes[0])
	})
	if got := put(serve(t, r), "/orders/secret"); got.err == nil {
		t.Errorf("a clean answer: %d", got.status)
	}
	nodes[0].Up()
	seen.untilKind(t, EventAborted)
	wantLogged(t, log, routeKey("/orders/:id", "secret"), "level=WARN", "connection is broken")
}

// A record that is open is told of, and again if it does not come to be.
func TestOpenRecordIsLogged(t *testing.T) {
	for name, up := range map[string]bool{"recorded in the end": true, "not recorded": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				log := &logbook.Book{}
				m := middleware(w, w.replica(core.WithLogger(log.Logger())))
				r := router()
				r.POST("/orders", m.Once, func(c *gin.Context) {
					w.nodes[0].Down()
					w.nodes[1].Down()
					io.WriteString(c.Writer, "paid")
				})
				call(r, "POST", "/orders", "", "Idempotency-Key", "secret").ok(w, "paid")
				key := core.Key(idempotent, service, "", "POST", "/orders", "secret")
				wantLogged(w, log, key, "level=WARN", "is open", "route=/orders")
				if up {
					w.nodes[0].Up()
					w.nodes[1].Up()
				}
				time.Sleep(time.Minute) // of the bubble
				if up {
					log.Want(w, 0, "could not be recorded")
				} else {
					wantLogged(w, log, key, "level=ERROR", "could not be recorded")
				}
			})
		})
	}
}
