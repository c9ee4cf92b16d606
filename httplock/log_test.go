package httplock

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// What is logged of losses and records: the route, and the key by its hash alone.

// A logbook collects log lines.
type logbook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logbook) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(line))
	return len(line), nil
}

func (b *logbook) option() core.Option { return core.WithLogger(slog.New(slog.NewTextHandler(b, nil))) }

// want: one line of httplock has all of parts, and none has the key.
func (b *logbook) want(t testing.TB, key string, parts ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := sha256.Sum256([]byte(key))
	parts = append(parts, "httplock: ", "key_hash="+hex.EncodeToString(sum[:8]), "token=")
	n := 0
	for _, line := range b.lines {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			n++
		}
		if strings.Contains(line, "secret") {
			t.Errorf("the key is in the log: %s", line)
		}
	}
	if n != 1 {
		t.Errorf("%d lines with %q, want 1:\n%s", n, parts, strings.Join(b.lines, ""))
	}
}

func TestBrokenConnectionIsLogged(t *testing.T) {
	nodes := testutil.NewNodes(t, 1)
	t.Cleanup(nodes[0].Up)
	log, seen := &logbook{}, &events{}
	m := middleware(t, newLocker(t, nodes, log.option(), core.TTL(4*time.Second), core.WithClockWindow(400*time.Millisecond), core.WithObserver(seen.Observer())), ByParam("id"))
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
	log.want(t, routeKey("/orders/:id", "secret"), "level=WARN", "connection is broken")
}

// A record that is open is told of, and again if it does not come to be.
func TestOpenRecordIsLogged(t *testing.T) {
	for name, up := range map[string]bool{"recorded in the end": true, "not recorded": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				log := &logbook{}
				m := middleware(w, w.replica(log.option()))
				r := router()
				r.POST("/orders", m.Once, func(c *gin.Context) {
					w.nodes[0].Down()
					w.nodes[1].Down()
					io.WriteString(c.Writer, "paid")
				})
				call(r, "POST", "/orders", "", "Idempotency-Key", "secret").ok(w, "paid")
				key := core.Key(idempotent, service, "", "POST", "/orders", "secret")
				log.want(w, key, "level=WARN", "is open", "route=/orders")
				if up {
					w.nodes[0].Up()
					w.nodes[1].Up()
				}
				time.Sleep(time.Minute) // of the bubble
				log.mu.Lock()
				failed := strings.Count(strings.Join(log.lines, ""), "could not be recorded")
				log.mu.Unlock()
				if up && failed > 0 {
					w.Error("it was recorded")
				}
				if !up {
					log.want(w, key, "level=ERROR", "could not be recorded")
				}
			})
		})
	}
}
