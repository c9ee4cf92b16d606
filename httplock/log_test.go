package httplock

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

// An unbreakable connection is one whose deadline cannot be set, although there is a method for it.
type unbreakable struct{ *httptest.ResponseRecorder }

func (unbreakable) SetWriteDeadline(time.Time) error { return http.ErrNotSupported }

// A connection that does not break may pass half an answer for a whole one: that is told of, too.
func TestConnectionThatDoesNotBreakIsLogged(t *testing.T) {
	bubble(t, 1, func(w *world) {
		log := &logbook.Book{}
		l := newReplica(w, w.nodes, core.WithLogger(log.Logger()))
		r := router()
		r.PUT("/orders/:id", middleware(w, l.Locker, ByParam("id")).Lock, func(c *gin.Context) {
			c.String(200, "half")
			l.Lose(c.Request.Context())
		})
		r.ServeHTTP(unbreakable{httptest.NewRecorder()}, newRequest("PUT", "/orders/secret"))
		log.Want(w, 1, "level=ERROR", "could not be broken", "route=/orders/:id", http.ErrNotSupported.Error())
		log.Want(w, 0, "secret")
	})
}

// A hijackable connection is one that a handler can take over.
type hijackable struct{ recorder }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, _ := net.Pipe()
	return conn, bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn)), nil
}

// After a loss nobody writes to a connection that the handler has taken over, and nothing is recorded: it is told of.
func TestLossWithAHijackedConnectionIsLogged(t *testing.T) {
	bubble(t, 1, func(w *world) {
		log := &logbook.Book{}
		l := newReplica(w, w.nodes, core.WithLogger(log.Logger()), core.WithObserver(w.events.Observer()))
		m := middleware(w, l.Locker, ByParam("id"))
		r := router()
		r.PUT("/orders/:id", m.Once, m.Lock, func(c *gin.Context) {
			conn, _, err := c.Writer.Hijack()
			if err != nil {
				w.Fatal(err)
			}
			conn.Close()
			l.Lose(c.Request.Context())
		})
		out := hijackable{recorder{httptest.NewRecorder()}}
		req := newRequest("PUT", "/orders/secret")
		req.Header.Set("Idempotency-Key", "k")
		r.ServeHTTP(out, req)
		if out.Body.Len() > 0 || w.events.count(EventLost) != 1 || w.events.count(EventRecorded) != 0 {
			w.Errorf("sent %q; %d lost, %d recorded", out.Body, w.events.count(EventLost), w.events.count(EventRecorded))
		}
		wantLogged(w, log, routeKey("/orders/:id", "secret"), "level=WARN", "has taken the connection over", "route=/orders/:id")
	})
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
