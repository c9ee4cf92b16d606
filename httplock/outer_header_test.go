package httplock

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// A session that is further out than Lock sets its cookie when the handler saves it, in a writer that it has kept. The
// client gets that cookie beside the handler's own. Repetitions get the cookies of their own sessions. After a loss, the
// client gets neither.
func TestSessionSavedInTheHandler(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		bubbleOf(t, fmt.Sprint("Arrived ", guarded), 1, func(w *world) {
			m := middleware(w, w.holding(), WithIdempotency(false, NoSender), ByParam("id"))
			r := router()
			r.POST("/logins/:id", func(c *gin.Context) {
				kept := c.Writer
				http.SetCookie(kept, &http.Cookie{Name: "seen", Value: c.GetHeader("Visit")})
				c.Set("save", func() { http.SetCookie(kept, &http.Cookie{Name: "session", Value: "saved"}) })
			}, m.Lock, func(c *gin.Context) {
				c.MustGet("save").(func())()
				if c.GetHeader("Lose") != "" {
					expire(c.Request.Context())
				}
				http.SetCookie(c.Writer, &http.Cookie{Name: "own", Value: "handler's"})
				io.WriteString(c.Writer, "welcome")
			})
			var h http.Handler = r
			if guarded {
				h = Arrived(r)
			}
			s := w.serve(h)

			for _, protocol := range protocols {
				post := func(visit string, key ...string) []string {
					got := s.do(context.Background(), protocol, "POST", "/logins/1", "", append(key, "Visit", visit)...)
					got.ok(w, "welcome")
					cookies := slices.Clone(got.header["Set-Cookie"])
					slices.Sort(cookies)
					return cookies
				}
				all := []string{"own=handler's", "seen=1", "session=saved"}
				if got := post("1"); !slices.Equal(got, all) {
					w.Errorf("%s: %q", protocol, got)
				}
				if got := post("1", "Idempotency-Key", protocol); !slices.Equal(got, all) {
					w.Errorf("%s, with a key: %q", protocol, got)
				}
				if got := post("2", "Idempotency-Key", protocol); !slices.Equal(got, []string{"seen=2"}) {
					w.Errorf("%s, repetition: %q", protocol, got)
				}

				lost := s.do(context.Background(), protocol, "POST", "/logins/1", "", "Visit", "3", "Lose", "1")
				lost.expect(w, 503, EventLost)
				if got := lost.header["Set-Cookie"]; !slices.Equal(got, []string{"seen=3"}) {
					w.Errorf("%s, loss: %q", protocol, got)
				}
			}
		})
	}
}

// Each middleware and the handler add to Set-Cookie and Vary, and none removes the values of another. A
// declared trailer that the handler does not set is the middleware's.
func TestHeadersThatAllAddTo(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		type changer struct{}
		locked := mux(m, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Add("Vary", "Accept")
			rw.Header().Del("Set-Cookie")
			r.Context().Value(changer{}).(func())()
			io.WriteString(rw, "done")
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			h := rw.Header()
			h.Set("Vary", "Origin")
			h.Set("Set-Cookie", "stale=1")
			h.Set("Trailer", "X-State")
			h.Set("X-State", "pending")
			locked.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), changer{}, func() {
				h.Add("Vary", "Cookie")
				h.Add("Set-Cookie", "session=saved")
				h.Set("X-State", "charged")
			})))
		})))

		for _, protocol := range protocols {
			got := s.do(context.Background(), protocol, "POST", "/orders/1", "")
			got.ok(w, "done")
			vary := slices.Sorted(slices.Values(got.header["Vary"]))
			if !slices.Equal(vary, []string{"Accept", "Cookie", "Origin"}) || !slices.Equal(got.header["Set-Cookie"], []string{"session=saved"}) {
				w.Errorf("%s: %v", protocol, got.header)
			}
			if state := got.header.Get("X-State"); state == "pending" {
				w.Errorf("%s: the trailer is %q", protocol, state)
			}
		}
	})
}

// If a middleware further out changes its header while the handler runs, the client gets the change. It is not a part of
// the record. What the handler changes wins.
func TestOuterHeaderThatChangesMeanwhile(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(false, NoSender), ByParam("id"))
		type changer struct{}
		locked := mux(m, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X-Handler", "handler's")
			rw.Header().Del("X-Removed")
			rw.Header().Set("X-Both", "handler's")
			r.Context().Value(changer{}).(func())()
			io.WriteString(rw, "done")
			if r.Header.Get("Idempotency-Key") == "" {
				flushes(rw) // streams
			}
		})
		s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			h, of := rw.Header(), r.Header.Get("Request")
			for _, name := range []string{"X-Kept", "X-Changed", "X-Dropped", "X-Removed", "X-Both"} {
				h.Set(name, "before "+of)
			}
			locked.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), changer{}, func() {
				h.Set("X-Changed", "after "+of)
				h.Set("X-Added", "after "+of)
				h.Set("X-Both", "after "+of)
				h.Del("X-Dropped")
			})))
		})))

		check := func(got reply, what string, want map[string]string) {
			got.ok(w, "done")
			for name, value := range want {
				if got.header.Get(name) != value {
					w.Errorf("%s: %s is %q, want %q", what, name, got.header.Get(name), value)
				}
			}
		}
		first := map[string]string{"X-Kept": "before 1", "X-Changed": "after 1", "X-Added": "after 1", "X-Dropped": "",
			"X-Removed": "", "X-Handler": "handler's", "X-Both": "handler's"}
		again := map[string]string{"X-Kept": "before 2", "X-Changed": "before 2", "X-Added": "", "X-Dropped": "before 2",
			"X-Removed": "", "X-Handler": "handler's", "X-Both": "handler's"}
		for _, protocol := range protocols {
			post := func(of string, key ...string) reply {
				return s.do(context.Background(), protocol, "POST", "/orders/1", "", append(key, "Request", of)...)
			}
			check(post("1"), protocol, first)
			check(post("1", "Idempotency-Key", protocol), protocol+" with a key", first)
			check(post("2", "Idempotency-Key", protocol), protocol+" again", again)
		}
	})
}

// A router that responds to the errors of handlers after the middleware, as echo does, comes too late: the log says so,
// once. A handler that writes nothing, and after which nobody does, is not reported.
func TestErrorRendererOutside(t *testing.T) {
	for _, fails := range []bool{false, true} {
		bubbleOf(t, fmt.Sprint("fails ", fails), 1, func(w *world) {
			log := &logbook.Book{}
			m := middleware(w, w.replica(core.WithLogger(log.Logger())), WithIdempotency(false, NoSender), ByParam("id"))
			inner := http.NewServeMux()
			inner.HandleFunc("/orders/{id}", func(rw http.ResponseWriter, r *http.Request) {
				m.LockHandler(http.HandlerFunc(func(locked http.ResponseWriter, _ *http.Request) { rw = locked })).ServeHTTP(rw, r)
				if fails {
					http.Error(rw, "sold out", http.StatusConflict)
				}
			})
			s := w.serve(Arrived(inner))

			for _, protocol := range protocols {
				s.do(context.Background(), protocol, "POST", "/orders/1", "", "Idempotency-Key", protocol).ok(w, "")
			}
			reports := 0
			if fails {
				reports = len(protocols)
			}
			log.Want(w, reports, "level=ERROR", "misconfigured", "error renderer")
		})
	}
}
