package httplock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

var large = strings.Repeat("0123456789", 20_000)

// answers are how handlers answer.
var answers = map[string]http.HandlerFunc{
	"nothing":      does(),
	"short":        does(writes("short")),
	"large":        does(writes(large)),
	"outgrowing":   does(slices.Repeat([]step{writes(large[:100_000])}, 11)...),
	"status 204":   does(status(204)),
	"status 304":   does(sets("ETag", `"1"`), status(304)),
	"204, body":    does(status(204), writes("x"), flushes),
	"two statuses": does(status(201), status(500), writes("made")),
	"error":        func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
	"flushes": does(slices.Concat([]step{sets("Content-Length", "200000")},
		slices.Repeat([]step{writes(large[:50_000]), flushes, writes(large[:50_000]), flushesByController}, 2))...),
	"hints": does(sets("Link", "</style.css>"), status(103), status(201), writes("made")),
	"deadline": does(func(w http.ResponseWriter) {
		fmt.Fprint(w, http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)))
	}),
	"copy":                           does(func(w http.ResponseWriter) { io.Copy(w, io.LimitReader(strings.NewReader(large), 100_000)) }),
	"trailers":                       does(sets("Trailer", "X-Sum, X-None"), writes("body"), sets("X-Sum", "sum"), sets(http.TrailerPrefix+"X-Late", "late")),
	"trailers of a stream":           does(sets("Trailer", "X-Sum"), writes("body"), flushes, sets("X-Sum", "sum")),
	"late header":                    does(writes("body"), sets("X-Late", "late")),
	"length":                         does(sets("Content-Length", "4"), writes("body")),
	"less than its length":           does(sets("Content-Length", "100"), writes("half")),
	"less than its length, streamed": does(sets("Content-Length", "100"), writes("half"), flushes),
	"more than its length": does(sets("Content-Length", "4"), writes("body"), func(w http.ResponseWriter) {
		if _, err := io.WriteString(w, "more"); err == nil {
			panic(err)
		}
	}),
	"no type":        does(func(w http.ResponseWriter) { w.Header()["Content-Type"] = nil }, writes("<html>")),
	"identity":       does(sets("Transfer-Encoding", "identity"), sets("Content-Type", "text/x"), writes("body")),
	"panic":          func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"invalid status": does(status(99), func(http.ResponseWriter) { panic("not reached") }),
}

// A step is what a handler does for its answer.
type step = func(http.ResponseWriter)

func does(steps ...step) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, do := range steps {
			do(w)
		}
	}
}

func sets(name, value string) step {
	return func(w http.ResponseWriter) { w.Header().Set(name, value) }
}
func status(n int) step             { return func(w http.ResponseWriter) { w.WriteHeader(n) } }
func writes(s string) step          { return func(w http.ResponseWriter) { io.WriteString(w, s) } }
func flushes(w http.ResponseWriter) { w.(http.Flusher).Flush() }

func flushesByController(w http.ResponseWriter) {
	if err := http.NewResponseController(w).Flush(); err != nil {
		panic(err)
	}
}

// plainly are those that all middlewares around a handler leave as they are.
var plainly = []string{"nothing", "short", "large", "outgrowing", "status 204", "two statuses", "error", "copy", "panic"}

// differs are headers that may differ: a stream has no length, and an answer that is kept back may have one.
var differs = []string{"Date", "Content-Length", "Transfer-Encoding", "Connection", "Idempotent-Replayed"}

func (r reply) comparable() string {
	h := r.header.Clone()
	for _, name := range differs {
		h.Del(name)
	}
	body := r.body
	if r.err != nil {
		body = "broken"
	}
	return fmt.Sprintf("%d %v %.30q of %d, whole %v", r.status, h, body, len(body), r.err == nil)
}

// A handler may answer as it likes, as if the middleware were not there; and a repetition gets the same answer.
func TestAnswers(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false))
		for name, answer := range answers {
			for _, host := range hosts {
				if host.hides && !slices.Contains(plainly, name) {
					continue
				}
				bare := w.serve(host.handler(nil, answer))
				locked := w.serve(host.handler(m, answer))
				want := ""
				for _, protocol := range protocols {
					of := fmt.Sprintf("%s, %s, %s", name, host.name, protocol)
					send := func(s *server, header ...string) reply {
						return s.do(context.Background(), protocol, "PUT", "/orders/1", "body", header...)
					}
					if name != "more than its length" || protocol != "HTTP/2.0" { // net/http lets it through there, and breaks it off later
						want = send(bare).comparable()
					}
					if got := send(locked).comparable(); got != want {
						w.Errorf("%s: %s, bare %s", of, got, want)
					}
					first := send(locked, "Idempotency-Key", `"`+of+`"`)
					if got := first.comparable(); got != want {
						w.Errorf("%s, idempotent: %s, bare %s", of, got, want)
					}
					wantReplay(w, of, first, send(locked, "Idempotency-Key", `"`+of+`"`))
				}
			}
		}
	})
}

// wantReplay checks what a repetition gets: the answer of the first, if that was whole and fits into a record.
func wantReplay(w *world, of string, first, again reply) {
	panics := strings.HasPrefix(of, "panic") || strings.HasPrefix(of, "invalid")
	switch {
	case first.err != nil && first.status == 0, panics && !strings.Contains(of, "inside"): // not recorded
		if again.header.Get("Idempotent-Replayed") != "" {
			w.Errorf("%s: replayed: %+v", of, again)
		}
	case first.err != nil || len(first.body) > largestRecord-1<<10:
		if again.status != 410 {
			w.Errorf("%s: %+v, first %+v", of, again, first)
		}
		if again.header.Get("Idempotent-Status") != fmt.Sprint(first.status) {
			w.Errorf("%s: %v", of, again.header)
		}
	case strings.HasPrefix(of, "no type"): // a record does not tell it from one that net/http finds out
		again.ok(w, first.body)
	default:
		maps.DeleteFunc(first.header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Trailer") })
		if got, want := again.comparable(), first.comparable(); got != want || again.header.Get("Idempotent-Replayed") != "true" {
			w.Errorf("%s, again: %s, first %s", of, got, want)
		}
	}
}

// A connection cannot be taken over under a lock: take the lock inside.
func TestHijack(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		everywhere(w, m, func(w http.ResponseWriter, r *http.Request) {
			_, _, err := http.NewResponseController(w).Hijack()
			fmt.Fprint(w, errors.Is(err, http.ErrNotSupported))
		}, func(of string, _ host, s *server, protocol string) {
			s.do(context.Background(), protocol, "PUT", "/orders/1", "").ok(w, "true")
		})
	})
}

// What gin tells its handlers of their answer is so, and Context.Stream ends with the lease.
func TestGinWriter(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		r := router()
		status := 0
		r.Use(func(c *gin.Context) { c.Status(206); c.Next(); status = c.Writer.Status() })
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			if c.Writer.WriteHeader(-1); c.Writer.Status() != 206 {
				w.Errorf("a status that was set further out is %d", c.Writer.Status())
			}
			c.Status(201)
			c.Status(202)
			if c.Writer.Written() || c.Writer.Size() != 0 || c.Writer.Status() != 202 || c.Writer.Pusher() != nil {
				w.Errorf("%v, %d, %d", c.Writer.Written(), c.Writer.Size(), c.Writer.Status())
			}
			c.Writer.WriteString("four")
			if !c.Writer.Written() || c.Writer.Size() != 4 {
				w.Errorf("%v, %d", c.Writer.Written(), c.Writer.Size())
			}
		})
		r.PUT("/stream/:id", m.Lock, func(c *gin.Context) {
			n := 0
			gone := c.Stream(func(to io.Writer) bool {
				if n++; n == 3 {
					expire(c.Request.Context())
				}
				fmt.Fprint(to, n)
				time.Sleep(time.Second) // of the bubble
				return n < 10
			})
			if !gone || n > 4 {
				w.Errorf("gone %v after %d", gone, n)
			}
		})
		// Where a handler has not begun its answer, an error handler further out makes one.
		r.PUT("/error/:id", func(c *gin.Context) {
			if c.Next(); len(c.Errors) > 0 && !c.Writer.Written() {
				c.String(418, c.Errors.Last().Error())
			}
		}, m.Lock, func(c *gin.Context) { c.Error(errors.New("teapot")) })
		s := w.serve(r)
		if got := s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", ""); got.status != 202 || got.body != "four" || status != 202 {
			w.Errorf("%+v, logged %d", got, status)
		}
		if got := s.do(context.Background(), "HTTP/1.1", "PUT", "/stream/1", ""); got.err == nil {
			w.Errorf("a clean answer: %+v", got)
		}
		if got := s.do(context.Background(), "HTTP/1.1", "PUT", "/error/1", ""); got.status != 418 || got.body != "teapot" {
			w.Errorf("%+v", got)
		}
	})
}
