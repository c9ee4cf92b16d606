package httplock

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/gin-gonic/gin"
)

// What broke off before it was as long as its handler had said is not replayed as if it were whole.
func TestAnswersThatBrokeOff(t *testing.T) {
	bubble(t, 1, func(w *world) {
		runs := 0
		m := middleware(w, w.locker, WithSafeMethods(true))
		r := router()
		r.POST("/reports", m.Once, func(c *gin.Context) {
			runs++
			c.DataFromReader(201, 100, "text/plain", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("broken"))), nil)
		})
		r.HEAD("/reports", m.Once, func(c *gin.Context) {
			runs++
			c.Header("Content-Length", "100")
			c.Header("Location", "/made")
		})
		r.POST("/nothing", m.Once, func(c *gin.Context) {
			runs++
			c.Header("Content-Length", "100")
			c.Header("Location", "/made")
			c.Status(204)
		})
		call(r, "POST", "/reports", "", "Idempotency-Key", "k")
		got := call(r, "POST", "/reports", "", "Idempotency-Key", "k")
		if got.expect(w, 410, EventIdempotencyOmitted); got.header.Get("Idempotent-Status") != "201" {
			w.Errorf("%+v", got)
		}
		for _, request := range []string{"HEAD /reports", "POST /nothing"} { // these have no body
			method, path, _ := strings.Cut(request, " ")
			first := call(r, method, path, "", "Idempotency-Key", "k")
			if again := call(r, method, path, "", "Idempotency-Key", "k"); again.status != first.status || again.header.Get("Location") != "/made" || again.header.Get("Idempotent-Replayed") != "true" {
				w.Errorf("%s: %+v", request, again)
			}
		}
		if runs != 3 {
			w.Errorf("%d runs", runs)
		}
	})
}

// What a handler compresses itself is replayed as it is.
func TestReplayOfWhatTheHandlerCompresses(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker)
		r := router()
		r.POST("/orders", m.Once, func(c *gin.Context) {
			c.Header("Content-Encoding", "gzip")
			z := gzip.NewWriter(c.Writer)
			fmt.Fprint(z, "ran")
			z.Close()
		})
		for range 2 {
			got := call(r, "POST", "/orders", "", "Idempotency-Key", "k")
			if got.header.Get("Content-Encoding") != "gzip" {
				w.Errorf("%+v", got)
			}
			got.unzipped(w.T).ok(w, "ran")
		}
	})
}

// A status that net/http refuses is no outcome that could be replayed.
func TestStatusThatIsNone(t *testing.T) {
	for _, status := range []int{101, 150, 1000} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				status, runs := status, 0
				m := middleware(w, w.locker, WithRecord(func(int) bool { return true }))
				r := router()
				r.POST("/orders", m.Once, func(c *gin.Context) {
					runs++
					c.String(status, "ran")
				})
				call(r, "POST", "/orders", "", "Idempotency-Key", "k")
				status = 200
				call(r, "POST", "/orders", "", "Idempotency-Key", "k").ok(w, "ran")
				if runs != 2 {
					w.Errorf("%d runs", runs)
				}
			})
		})
	}
}

// The wrong way around, too, the answer of a handler whose lease was lost is not recorded.
func TestLockAroundOnceIsLost(t *testing.T) {
	bubble(t, 1, func(w *world) {
		runs := 0
		m := middleware(w, w.locker, ByParam("id"))
		r := router()
		r.PUT("/orders/:id", m.Lock, m.Once, func(c *gin.Context) {
			if runs++; runs == 1 {
				outer, _ := w.locker.Holding(c.Request.Context(), routeKey("/orders/:id", "1"))
				w.lose(outer.Context())
				<-c.Request.Context().Done()
				c.String(500, "given up")
				return
			}
			c.String(200, "ran")
		})
		call(r, "PUT", "/orders/1", "", "Idempotency-Key", "k").expect(w, 503, EventLost)
		call(r, "PUT", "/orders/1", "", "Idempotency-Key", "k").ok(w, "ran")
	})
}

// Discard is heard by all that would record the answer.
func TestDiscardWithinTwo(t *testing.T) {
	bubble(t, 1, func(w *world) {
		runs := 0
		outer := middleware(w, w.locker)
		inner := with(w, outer, WithTenant(func(*http.Request) (string, error) { return "acme", nil }))
		r := router()
		r.POST("/orders", outer.Once, inner.Once, func(c *gin.Context) {
			runs++
			Discard(c.Request.Context())
			c.String(400, "again")
		})
		for range 2 {
			call(r, "POST", "/orders", "", "Idempotency-Key", "k")
		}
		if runs != 2 {
			w.Errorf("%d runs", runs)
		}
	})
}

// An answer within the limit is recorded, also where its headers take what a small body leaves of a record.
func TestReplayOfLargeHeaders(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker)
		r := router()
		r.POST("/orders", m.Once, func(c *gin.Context) {
			c.Header("Link", strings.Repeat("l", 10_000))
			c.String(201, strings.Repeat("x", partSize))
		})
		first := call(r, "POST", "/orders", "", "Idempotency-Key", "k")
		again := call(r, "POST", "/orders", "", "Idempotency-Key", "k")
		again.replays(w, first)
		if len(again.body) != partSize || len(again.header.Get("Link")) != 10_000 {
			w.Errorf("%d bytes", len(again.body))
		}
	})
}
