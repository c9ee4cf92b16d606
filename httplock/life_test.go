package httplock

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

// follows is what the rules say of a state and of what happens to it.
func follows(h happening, s state) state {
	switch {
	case s >= sent: // is final
		return s
	case h == bypassed && s != streaming: // nobody knows what the client has
		return broken
	case s == streaming && (h == lost || h == cutShort): // the client has a part, and must see that
		return broken
	case h == lost: // the client has nothing
		return refused
	case h == cutShort: // whoever recovers the panic answers
		return dropped
	case h == returned && s == oversized: // a part is gone
		return refused
	case h == returned:
		return sent
	case h == begun && s == open:
		return kept
	case h == begun: // has been
		return s
	case (h == flushed || h == outgrown) && s == kept, h == flushed && s == streaming:
		return streaming
	case h == overflow && (s == kept || s == oversized):
		return oversized
	}
	return impossible
}

// The table says of every state and happening what the rules say.
func TestLife(t *testing.T) {
	for h := range happening(len(life)) {
		for s := range impossible {
			if got, want := s.after(h), follows(h, s); got != want {
				t.Errorf("state %d, happening %d: %d, want %d", s, h, got, want)
			}
		}
	}
}

// swallowed: what such a Recovery makes of http.ErrAbortHandler is an empty answer, with or without the middleware. gin's own
// does so from 1.12 on.
func swallowed(h host) bool {
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	return !h.plain && call(h.handler(nil, abort), "PUT", "/orders/1", "").status == 200
}

// What is written past the middleware breaks the connection, with or without a loss, and is not recorded.
func TestBypassed(t *testing.T) {
	for _, how := range []string{"", "write", "lose"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, 1, func(w *world) {
				m := middleware(w, w.holding(), ByParam("id"), WithIdempotency(false))
				runs := 0
				r := gin.New()
				r.Use(recovery)
				r.PUT("/other", func(c *gin.Context) { c.String(200, "hello") })
				r.PUT(hostPath, m.Lock, func(c *gin.Context) {
					runs++
					if how == "write" {
						c.String(201, "own")
					}
					if how == "lose" {
						expire(c.Request.Context())
					}
					c.Request.URL.Path = "/other"
					r.HandleContext(c)
				})
				s := w.serve(r)
				for _, protocol := range protocols {
					for range 2 {
						got := s.do(context.Background(), protocol, "PUT", "/orders/1", "", "Idempotency-Key", "k"+protocol[5:])
						if got.err == nil {
							w.Errorf("%s: a clean answer: %d %q", protocol, got.status, got.body)
						}
						time.Sleep(time.Second) // of the bubble: the client may be first to know
					}
				}
				if runs != 6 || w.events.count(EventMisconfigured) != 6 {
					w.Errorf("%d runs, counted %d times", runs, w.events.count(EventMisconfigured))
				}
			})
		})
	}
}

// A Lock around another keeps back, where the connection cannot be broken, what that one would stream.
func TestStreamWithinALock(t *testing.T) {
	bubble(t, 1, func(w *world) {
		l := w.holding()
		outer, inner := middleware(w, l, ByFunc(func(*http.Request) (string, error) { return "all", nil })), middleware(w, l, ByParam("id"))
		s := w.serve(mount(compress, outer.Lock, recovery, inner.Lock, func(c *gin.Context) {
			c.String(200, "half")
			c.Writer.Flush()
			expire(c.Request.Context())
		}))
		for _, protocol := range protocols {
			s.do(context.Background(), protocol, "PUT", "/orders/1", "").expect(w, 503, EventLost)
		}
	})
}
