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

	"github.com/lockkit/lockkit/internal/race"
)

var large = strings.Repeat("0123456789", 20_000)

// answers has handlers with all kinds of responses.
var answers = map[string]http.HandlerFunc{
	"nothing":      does(),
	"short":        does(writes("short")),
	"empty":        does(writes("")),
	"many writes":  does(slices.Repeat([]step{writes("x")}, 100)...),
	"large":        does(writes(large)),
	"outgrowing":   does(slices.Repeat([]step{writes(large[:100_000])}, 11)...),
	"two statuses": does(status(201), status(500), writes("made")),
	"status late":  does(writes("made"), status(500)),
	"error":        func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
	"copy":         does(func(w http.ResponseWriter) { io.Copy(w, io.LimitReader(strings.NewReader(large), 100_000)) }),
	"echo":         func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) },
	"redirect":     func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/orders/2", http.StatusSeeOther) },
	"content": func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader("text"))
	},

	"status 201":        does(status(201)),
	"status 202, later": does(sets("Retry-After", "10"), status(202)),
	"status 203":        does(status(203), writes("x")),
	"status 204":        does(status(204)),
	"204, body":         does(status(204), writes("x"), flushes),
	"status 206":        does(sets("Content-Range", "bytes 0-1/9"), status(206), writes("xx")),
	"status 299":        does(status(299), writes("x")),
	"status 301":        does(sets("Location", "/elsewhere"), status(301)),
	"status 304":        does(sets("ETag", `"1"`), status(304)),
	"status 400":        does(status(400), writes("x")),
	"status 400, later": does(sets("Retry-After", "10"), status(400), writes("x")),
	"status 401":        does(sets("Www-Authenticate", "Basic"), status(401)),
	"status 404":        does(status(404), writes("x")),
	"status 408":        does(status(408), writes("x")),
	"status 409":        does(status(409), writes("x")),
	"status 410":        does(status(410)),
	"status 422":        does(status(422), writes("x")),
	"status 423":        does(status(423), writes("x")),
	"status 425":        does(status(425), writes("x")),
	"status 429":        does(sets("Retry-After", "10"), status(429), writes("x")),
	"status 451":        does(status(451), writes("x")),
	"status 500":        does(status(500), writes("x")),
	"status 500, it stands": func(w http.ResponseWriter, r *http.Request) {
		Record(r)
		w.WriteHeader(500)
		io.WriteString(w, "stands")
	},
	"status 429, it stands":  func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(429); Record(r) },
	"status 501":             does(status(501)),
	"status 503":             does(status(503), writes("x")),
	"status 599":             does(status(599), writes("x")),
	"hints":                  does(sets("Link", "</style.css>"), status(103), status(201), writes("made")),
	"invalid status":         does(status(99), func(http.ResponseWriter) { panic("not reached") }),
	"panic":                  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"panic after the header": does(status(201), func(http.ResponseWriter) { panic(http.ErrAbortHandler) }),
	"panic after half of it": does(sets("Content-Length", "8"), writes("half"), func(http.ResponseWriter) { panic(http.ErrAbortHandler) }),

	"flushes": does(slices.Concat([]step{sets("Content-Length", "200000")},
		slices.Repeat([]step{writes(large[:50_000]), flushes, writes(large[:50_000]), flushesByController}, 2))...),
	"flush first": does(flushes, writes("body")),
	"flush only":  does(status(201), flushes),
	"events": does(slices.Concat([]step{sets("Content-Type", "text/event-stream"), sets("Cache-Control", "no-store")},
		slices.Repeat([]step{writes("data: x\n\n"), flushes}, 20))...),
	"deadline": does(func(w http.ResponseWriter) {
		fmt.Fprint(w, http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)))
	}),

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
	"no type":          does(func(w http.ResponseWriter) { w.Header()["Content-Type"] = nil }, writes("<html>")),
	"own type":         does(sets("Content-Type", "text/x"), writes("<html>")),
	"sniffed":          does(writes("<html>")),
	"header removed":   does(func(w http.ResponseWriter) { w.Header().Del("X-Outer") }, writes("body")),
	"header set again": does(sets("X-Outer", "inner"), writes("body")),
	"many values":      does(func(w http.ResponseWriter) { w.Header()["X-Two"] = []string{"1", "2"} }, writes("body")),
	"empty value":      does(sets("X-Empty", ""), writes("body")),
	"not UTF-8":        does(sets("X-Name", "caf\xe9"), writes("\xff\xfe")),
	"header of records": does(sets(omittedHeader, "true"), sets(removedHeader, "X-Outer"), writes("body"), func(w http.ResponseWriter) {
		w.Header().Del(omittedHeader)
	}),
	"identity":   does(sets("Transfer-Encoding", "identity"), sets("Content-Type", "text/x"), writes("body")),
	"compressed": does(sets("Content-Encoding", "br"), writes("not looked into")),
}

// A step is one action of a handler on its response.
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

// plainly has the names of the responses that no middleware around a handler changes.
var plainly = []string{"nothing", "short", "large", "outgrowing", "status 204", "two statuses", "error", "copy", "panic", "echo",
	"many writes", "status 400", "status 404", "status 409", "status 500", "status 500, it stands", "status 503"}

// differs has the headers that may differ: a response that is kept back may have a length, and a stream has none.
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

// unlike reports whether the middleware changes a response, as the package documentation says: the bytes that were
// written before a panic are dropped. That is visible if a Recovery is further out.
func unlike(of string, host host) bool {
	return strings.HasPrefix(of, "panic after") && !host.plain
}

// setsOuter is a middleware further out that sets a header.
func setsOuter(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", "outer")
		h.ServeHTTP(w, r)
	})
}

// The middleware does not change the response of a handler, and a repetition gets the same response.
func TestAnswers(t *testing.T) {
	race.SkipSweep(t)
	for name, answer := range answers {
		bubbleOf(t, name, 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"), WithIdempotency(false, NoSender))
			for _, host := range hosts {
				if host.hides && !slices.Contains(plainly, name) {
					continue
				}
				bare := w.serve(setsOuter(host.handler(nil, answer)))
				locked := w.serve(setsOuter(host.handler(m, answer)))
				bareInArrived := w.serve(Arrived(setsOuter(host.handler(nil, answer))))
				lockedInArrived := w.serve(Arrived(setsOuter(host.handler(m, answer))))
				for _, protocol := range protocols {
					of := fmt.Sprintf("%s, %s, %s", name, host.name, protocol)
					sameAnswers(w, of, host, bare, locked, protocol)
					sameAnswers(w, of+", Arrived", host, bareInArrived, lockedInArrived, protocol)

					want, got := answerOf(bare, protocol), answerOf(bareInArrived, protocol)
					if got.comparable() != want.comparable() {
						w.Errorf("%s: %s in Arrived, bare %s", of, got.comparable(), want.comparable())
					}
				}
			}
		})
	}
}

// sameAnswers compares the responses of a bare handler, of a locked one, of a request with an Idempotency-Key, and of
// its repetition.
func sameAnswers(w *world, of string, host host, bare, locked *server, protocol string) {
	want := answerOf(bare, protocol).comparable()
	plain := answerOf(locked, protocol)

	// With HTTP/2, net/http accepts the excess bytes, and breaks the response off later.
	if strings.HasPrefix(of, "more than its length") && protocol == "HTTP/2.0" {
		want = plain.comparable()
	}

	if got := plain.comparable(); got != want && !unlike(of, host) {
		w.Errorf("%s: %s, bare %s", of, got, want)
	}

	first := answerOf(locked, protocol, "Idempotency-Key", `"`+of+`"`)
	if got := first.comparable(); got != want && !unlike(of, host) {
		w.Errorf("%s, idempotent: %s, bare %s", of, got, want)
	}

	wantReplay(w, of, host, first, answerOf(locked, protocol, "Idempotency-Key", `"`+of+`"`))
}

func answerOf(s *server, protocol string, header ...string) reply {
	return s.do(context.Background(), protocol, "PUT", "/orders/1", "body", header...)
}

// unrecorded has the statuses of responses that are not recorded.
var unrecorded = []int{401, 403, 407, 408, 423, 425, 429, 499, 500, 501, 503, 507, 599}

// wantReplay checks that a repetition gets the response of the first request if that was recorded and fits into a
// record. Otherwise the handler runs again and has the same response. The middleware does not see a panic that is
// recovered inside. Then the status counts that the Recovery has left: 500, or, after http.ErrAbortHandler with newer
// versions of gin, the handler's own status.
func wantReplay(w *world, of string, host host, first, again reply) {
	w.Helper()
	stands := strings.Contains(of, "it stands")
	invites := slices.Contains(unrecorded, first.status) || first.status >= 400 && first.header.Get("Retry-After") != ""
	replayed := again.header.Get("Idempotent-Replayed") != ""
	large := len(first.body) > defaults.maxRecord-1<<10

	if want := first.err == nil && (host.inside || !strings.HasPrefix(of, "panic")) && (stands || !invites); replayed != want {
		w.Errorf("%s: replayed %v, want %v: %+v, first %+v", of, replayed, want, again, first)
		return
	}

	if replayed && large {
		again.expect(w, 410, EventIdempotencyOmitted)
		if again.header.Get("Idempotent-Status") != fmt.Sprint(first.status) {
			w.Errorf("%s: %v", of, again.header)
		}
		return
	}

	if strings.HasPrefix(of, "header of records") { // these headers are the middleware's own
		again.ok(w, first.body)
		return
	}

	if replayed {
		maps.DeleteFunc(first.header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Trailer") })
	}

	if got, want := again.comparable(), first.comparable(); got != want {
		w.Errorf("%s, again: %s, first %s", of, got, want)
	}
}

// A handler under a Lock cannot take its connection over.
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

// The methods of gin's ResponseWriter return the state of the response, and Context.Stream ends with the lease.
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
				time.Sleep(time.Second) // in the time of the bubble
				return n < 10
			})
			if !gone || n > 4 {
				w.Errorf("gone %v after %d", gone, n)
			}
		})

		// If a handler has not begun its response, an error handler further out can write one.
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
