package httplock

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// Answers of any size, from the record as far as they fit into it.
func TestReplayOfLargeAnswers(t *testing.T) {
	bubble(t, 1, func(w *world) {
		runs := 0
		r := router()
		m := middleware(w, w.locker, WithRecordLimit(60<<10))
		r.POST("/large", m.Once, func(c *gin.Context) {
			runs++
			var n int
			fmt.Sscan(c.Query("n"), &n)
			c.Header("Location", "/made")
			if c.Query("links") != "" {
				c.Header("Link", strings.Repeat("l", 70_000))
			}
			c.String(201, strings.Repeat("x", n))
		})
		for _, c := range []struct {
			query    string
			size     int
			omitted  bool
			location string // of the replay: of headers that do not fit, none are kept
		}{
			{"n=0", 0, false, "/made"}, {"n=61440", 60 << 10, false, "/made"}, {"n=61441", 60<<10 + 1, true, "/made"},
			{"n=1048577", 1<<20 + 1, true, "/made"}, {"n=5&links=1", 5, true, ""},
		} {
			first := call(r, "POST", "/large?"+c.query, "", "Idempotency-Key", c.query)
			again := call(r, "POST", "/large?"+c.query, "", "Idempotency-Key", c.query)
			if first.status != 201 || len(first.body) != c.size {
				w.Errorf("%s: first %d, %d bytes", c.query, first.status, len(first.body))
			}
			if c.omitted {
				again.expect(w, 410, EventIdempotencyOmitted)
				if h := again.header; h.Get("Idempotent-Replayed") != "true" || h.Get("Idempotent-Status") != "201" || h.Get("Location") != c.location {
					w.Errorf("%s: again %v", c.query, h)
				}
				continue
			}
			again.replays(w, first)
		}
		if runs != 5 {
			w.Errorf("%d runs", runs)
		}
	})
}

// What a real server keeps is what was answered, byte by byte. One server: of three, one may still have the lease
// when the others have the record, and if one of those is slow then, the replica cannot know that the first request
// is over.
func TestReplayFromRealRedis(t *testing.T) {
	server := testutil.NewServers(t, 1)[0]
	body := make([]byte, 60<<10) // the largest that is recorded
	for i := range body {
		body[i] = byte(i * 7)
	}
	var replicas []http.Handler
	for range 2 {
		locks := lockerOn(t, []redis.UniversalClient{server.Client()}, patient...)
		r := router()
		r.POST("/report", middleware(t, locks).Once, func(c *gin.Context) {
			c.Data(201, "application/octet-stream", body)
		})
		replicas = append(replicas, r)
	}
	for i, r := range replicas {
		got := call(r, "POST", "/report", "", "Idempotency-Key", "k")
		if got.status != 201 || got.body != string(body) || got.header.Get("Content-Type") != "application/octet-stream" ||
			(got.header.Get("Idempotent-Replayed") == "true") != (i == 1) {
			t.Errorf("replica %d: %d, %d bytes, %v", i, got.status, len(got.body), got.header)
		}
	}
}

func FuzzParseOutcome(f *testing.F) {
	f.Add(outcome{Fingerprint: []byte("f"), Status: 201, Header: http.Header{"Location": {"/x"}}, body: []byte("body")}.encode())
	f.Add([]byte{outcomeVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{outcomeVersion, 0x80})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOutcome(b)
		if err != nil {
			return
		}
		again, err := parseOutcome(o.encode())
		if err != nil || again.Status != o.Status || !o.Omitted && len(b) <= largestRecord && string(again.body) != string(o.body) && !again.Omitted {
			t.Errorf("%+v, %+v, %v", o, again, err)
		}
	})
}
