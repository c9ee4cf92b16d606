package httplock

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// A bodyLogger is what many write to log answers: a writer without Unwrap.
type bodyLogger struct {
	gin.ResponseWriter
	seen bytes.Buffer
}

func (w *bodyLogger) Write(b []byte) (int, error) {
	w.seen.Write(b)
	return w.ResponseWriter.Write(b)
}

// A compressing writer is one as gin-contrib/gzip has it.
type compressing struct {
	gin.ResponseWriter
	zip *gzip.Writer
}

func (w *compressing) Write(b []byte) (int, error)       { return w.zip.Write(b) }
func (w *compressing) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// hiding are middlewares whose writers hide the connection.
var hiding = map[string]gin.HandlerFunc{
	"body logger": func(c *gin.Context) {
		c.Writer = &bodyLogger{ResponseWriter: c.Writer}
		c.Next()
	},
	"gzip": func(c *gin.Context) {
		w := &compressing{c.Writer, gzip.NewWriter(c.Writer)}
		c.Header("Content-Encoding", "gzip")
		c.Writer = w
		c.Next()
		w.zip.Close()
	},
}

// A repetition is compressed if its sender accepts that, whatever the first one's did.
func TestReplayBehindCompression(t *testing.T) {
	bubble(t, 1, func(w *world) {
		r := router()
		r.Use(func(c *gin.Context) {
			if c.GetHeader("Accept-Encoding") == "gzip" {
				hiding["gzip"](c)
			}
		})
		r.POST("/payments", middleware(w, w.locker).Once, func(c *gin.Context) { c.String(201, "paid") })
		for _, accepts := range [][]string{{"gzip", "", "gzip"}, {"", "gzip", ""}} {
			for i, encoding := range accepts {
				got := call(r, "POST", "/payments", "", "Idempotency-Key", "k"+accepts[0], "Accept-Encoding", encoding)
				if plain := got.unzipped(w.T); got.header.Get("Content-Encoding") != encoding || plain.body != "paid" || plain.header.Get("Content-Type") == "" ||
					(plain.header.Get("Idempotent-Replayed") != "") != (i > 0) {
					w.Errorf("request %d of %q: %+v", i, accepts, got)
				}
			}
		}
	})
}

// unzipped is a reply as a client sees it that decompresses.
func (r reply) unzipped(t *testing.T) reply {
	if r.header.Get("Content-Encoding") != "gzip" {
		return r
	}
	z, err := gzip.NewReader(strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Error(err)
	}
	r.body = string(b)
	return r
}

// ways are how handlers answer.
var ways = map[string]func(c *gin.Context){
	"short":           func(c *gin.Context) { c.String(200, "short") },
	"flushed":         func(c *gin.Context) { c.String(200, "short"); c.Writer.Flush() },
	"header only":     func(c *gin.Context) { c.Status(200); c.Writer.WriteHeaderNow() },
	"large, in parts": func(c *gin.Context) { inParts(c.Writer, 100, 1000) },
	"too large":       func(c *gin.Context) { inParts(c.Writer, 11, 100_000) },
}

func inParts(w io.Writer, n, size int) {
	for range n {
		_, _ = w.Write(bytes.Repeat([]byte{'x'}, size))
	}
}

// Where the connection cannot be broken, a lost lease makes no clean answer either: what hides it may stand outside of Lock
// and Recovery, and the request may be idempotent.
func TestLostBehindWhatHidesTheConnection(t *testing.T) {
	for hidden, hide := range hiding {
		for way, write := range ways {
			for _, once := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, once %v", hidden, way, once), func(t *testing.T) {
					bubble(t, 1, func(w *world) { lostBehind(w, hide, write, once) })
				})
			}
		}
	}
}

func lostBehind(w *world, hide gin.HandlerFunc, write func(c *gin.Context), once bool) {
	m := middleware(w, w.locker, ByParam("id"))
	r := gin.New()
	r.Use(hide, gin.Recovery(), func(c *gin.Context) {
		if once {
			m.Once(c)
		}
	})
	runs := 0
	r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
		runs++
		write(c)
		w.lose(c.Request.Context())
		<-c.Request.Context().Done()
		if _, err := c.Writer.Write([]byte("more, ")); err == nil && c.Writer.Size() > kept {
			w.Error("more was taken than is kept back")
		}
	})
	for want := 1; want <= 2; want++ { // nothing was recorded
		call(r, "PUT", "/orders/1", "", "Idempotency-Key", "k").unzipped(w.T).expect(w, 503, EventLost)
		if runs != want {
			w.Errorf("%d runs", runs)
		}
		time.Sleep(ttl) // of the bubble
	}
}

// Without a loss an answer arrives as ever, or not at all: one that is too large to be kept back is a 500, never a part.
func TestAnswersBehindWhatHidesTheConnection(t *testing.T) {
	for name, hide := range hiding {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(w *world) { answersBehind(w, hide) })
		})
	}
}

func answersBehind(w *world, hide gin.HandlerFunc) {
	m := middleware(w, w.locker, ByParam("id"))
	r := gin.New()
	r.Use(hide, gin.Recovery())
	var writing error
	sized := func(c *gin.Context) {
		var n int
		fmt.Sscan(c.Query("n"), &n)
		c.Header("X-Made", "1")
		c.Status(201)
		_, writing = c.Writer.Write(bytes.Repeat([]byte{'x'}, n))
		c.Writer.Flush()
	}
	r.PUT("/orders/:id", m.Lock, sized)
	r.PUT("/more/:id", with(w, m, WithBuffer(2<<20)).Lock, sized)
	r.PUT("/once/:id", m.Once, m.Lock, sized)

	for path, n := range map[string]int{"/orders/1": kept, "/more/1": 2 << 20, "/once/1": kept} {
		got := call(r, "PUT", fmt.Sprintf("%s?n=%d", path, n), "", "Idempotency-Key", "fits").unzipped(w.T)
		if got.status != 201 || len(got.body) != n || got.header.Get("X-Made") != "1" || writing != nil {
			w.Errorf("%s: %d, %d bytes of %d, %v", path, got.status, len(got.body), n, writing)
		}
		got = call(r, "PUT", fmt.Sprintf("%s?n=%d", path, n+1), "").unzipped(w.T)
		if got.expect(w, 500, EventAnswerTooLarge); writing == nil || got.header.Get("X-Made") != "" {
			w.Errorf("%s: the handler was told %v; %v", path, writing, got.header)
		}
	}
	for range 2 { // it was carried out, and is not again
		writing = nil
		call(r, "PUT", fmt.Sprintf("/once/1?n=%d", kept+1), "", "Idempotency-Key", "large").unzipped(w.T).expect(w, 500, EventAnswerTooLarge)
	}
	if writing != nil {
		w.Error("it was carried out again")
	}
	if n := w.events.count(EventAnswerTooLarge); n != 4 {
		w.Errorf("counted %d times", n)
	}
}

// A looking writer has Unwrap.
type looking struct{ gin.ResponseWriter }

func (w looking) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// What can be looked through hides nothing: the answer goes out as it comes.
func TestAnswersGoOutThroughWhatCanBeLookedThrough(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		out := recorder{httptest.NewRecorder()}
		r := router()
		r.Use(func(c *gin.Context) { c.Writer = looking{c.Writer}; c.Next() })
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			c.String(200, "half")
			c.Writer.Flush()
			if !out.Flushed || out.Body.String() != "half" {
				w.Errorf("flushed %v: %q", out.Flushed, out.Body)
			}
		})
		r.ServeHTTP(out, httptest.NewRequest("PUT", "/orders/1", nil))
	})
}

// One Middleware has requests whose connection is hidden and others: which one a request is says nothing of the next.
func TestConnectionsAreLookedAtForEachRequest(t *testing.T) {
	for name, first := range map[string]bool{"hidden first": true, "hidden last": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(w *world) { lookedAtForEachRequest(w, first) })
		})
	}
}

func lookedAtForEachRequest(w *world, hidden bool) {
	m := middleware(w, w.locker, ByParam("id"))
	r := router()
	r.Use(func(c *gin.Context) {
		if c.Query("hidden") != "" {
			hiding["body logger"](c)
		}
	})
	r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
		c.String(200, "half")
		w.lose(c.Request.Context())
	})
	for i := range 4 {
		path, aborted := "/orders/1", w.events.count(EventAborted)
		if hidden {
			path += "?hidden=1"
		}
		got := call(r, "PUT", path, "")
		if hidden {
			got.expect(w, 503, EventLost)
		}
		if broken := w.events.count(EventAborted) > aborted; broken == hidden {
			w.Errorf("request %d, hidden %v: its connection is broken: %v", i, hidden, broken)
		}
		hidden = !hidden
		time.Sleep(ttl) // of the bubble
	}
}

// http.TimeoutHandler around gin keeps back what the handlers write, and hides the connection.
func TestLostBehindTimeoutHandler(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		r := router()
		r.PUT("/orders/:id", m.Lock, func(c *gin.Context) {
			c.String(200, "done")
			w.lose(c.Request.Context())
			<-c.Request.Context().Done()
			if !errors.Is(context.Cause(c.Request.Context()), core.ErrLost) {
				w.Errorf("ended by %v", context.Cause(c.Request.Context()))
			}
		})
		call(http.TimeoutHandler(r, time.Hour, "late"), "PUT", "/orders/1", "").expect(w, 503, EventLost)
	})
}
