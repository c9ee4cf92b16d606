package httplock

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"
)

// readers has middlewares further out that read the body or a part of it.
var readers = map[string]gin.HandlerFunc{
	"all of it":          func(c *gin.Context) { _, _ = io.ReadAll(c.Request.Body) },
	"a part of it":       func(c *gin.Context) { _, _ = c.Request.Body.Read(make([]byte, 4)) },
	"all, and no body":   func(c *gin.Context) { _, _ = io.ReadAll(c.Request.Body); c.Request.Body = http.NoBody },
	"all, and nil":       func(c *gin.Context) { _, _ = io.ReadAll(c.Request.Body); c.Request.Body = nil },
	"form":               func(c *gin.Context) { _ = c.Request.ParseForm() },
	"multipart form":     func(c *gin.Context) { _ = c.Request.ParseMultipartForm(1 << 20) },
	"form value":         func(c *gin.Context) { _ = c.Request.PostFormValue("csrf") },
	"ShouldBindBodyWith": func(c *gin.Context) { _ = c.ShouldBindBodyWith(&struct{}{}, anyBinding{}) },
}

// An anyBinding is a binding that accepts any body.
type anyBinding struct{}

func (anyBinding) Name() string                      { return "any" }
func (anyBinding) Bind(*http.Request, any) error     { return nil }
func (anyBinding) BindBody(body []byte, _ any) error { return nil }

const multipartBody = "--b\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n1000\r\n--b--\r\n"

// forms has bodies by their types.
var forms = map[string]string{
	"application/x-www-form-urlencoded": "amount=1000&csrf=x",
	"multipart/form-data; boundary=b":   multipartBody,
	"application/json":                  `{"amount":1000,"order":1}`,
}

// reads reports whether a reader reads a body of that type.
func reads(reader, kind string) bool {
	switch reader {
	case "form":
		return strings.HasSuffix(kind, "urlencoded")
	case "multipart form", "form value":
		return !strings.HasSuffix(kind, "json")
	}
	return true
}

// If a middleware further out has read the body, and the key or identity of a request needs it, the request is refused
// as misconfigured. The refusal says that the middleware must be put further out. Other requests run.
func TestBodyThatWasRead(t *testing.T) {
	for reader, read := range readers {
		bubbleOf(t, reader, 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"))
			body := func(r *http.Request) (string, error) { b, err := io.ReadAll(r.Body); return "x" + string(b), err }
			ginBody := func(r *http.Request) (string, error) { c, _ := GinContext(r); return body(c.Request) }
			needing := map[string]*Middleware{
				"once": with(m, WithIdempotency(true, NoSender)), "json": with(m, ByJSON("order")), "func": with(m, ByFunc(body)),
				"key": with(m, ByKey(body)), "tenant": with(m, WithTenant(body)), "sender": with(m, WithIdempotency(true, body)),
				"gin": with(m, ByFunc(ginBody)),
			}

			runs := 0
			r := router()
			outside := r.Group("/", func(c *gin.Context) { read(c); c.Next() })
			for name, m := range needing {
				outside.POST("/"+name+"/:id", m.Lock, func(c *gin.Context) { runs++ })
			}
			outside.POST("/param/:id", m.Lock, text("ran"))

			s := w.serve(r)
			for kind, body := range forms {
				if !reads(reader, kind) {
					continue
				}
				for _, protocol := range protocols {
					for name := range needing {
						got := s.do(context.Background(), protocol, "POST", "/"+name+"/1", body, "Idempotency-Key", "k", "Content-Type", kind)
						if got.expect(w, 500, EventMisconfigured); !strings.Contains(got.body, "further out") {
							w.Errorf("%s, %s: %s", name, kind, got.body)
						}
					}
					s.do(context.Background(), protocol, "POST", "/param/1", body, "Content-Type", kind).ok(w, "ran")
				}

				got := call(r, "POST", "/once/1", body, "Idempotency-Key", "k", "Content-Type", kind) // this request has no Content-Length header
				if reader != "a part of it" {
					got.expect(w, 500, EventMisconfigured)
				}
			}

			if most := len(forms); runs > most {
				w.Errorf("%d runs", runs)
			}
		})
	}
}

// If a body of unknown length was read whole, the request is refused. If a part of it was read, that cannot be
// recognized.
func TestChunkedBodyThatWasRead(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, WithIdempotency(true, NoSender))
		r := router()
		for name, read := range readers {
			r.POST("/"+name, func(c *gin.Context) { read(c); c.Next() }, m.Lock, text("ran"))
		}
		r.POST("/unread", m.Lock, text("ran"))

		s := w.serve(r)

		send := func(name, protocol, kind string, body io.Reader) reply {
			req := must(http.NewRequestWithContext(w.Context(), "POST", "http://example.com/"+strings.ReplaceAll(name, " ", "%20"), struct{ io.Reader }{body}))
			req.Header.Set("Idempotency-Key", fmt.Sprintf("%x", protocol+kind))
			req.Header.Set("Content-Type", kind)
			return s.roundTrip(protocol, req, 0)
		}

		for _, protocol := range protocols[1:] {
			for kind, body := range forms {
				for name := range readers {
					if reads(name, kind) && name != "a part of it" {
						send(name, protocol, kind, strings.NewReader(body)).expect(w, 500, EventMisconfigured)
					}
				}
				send("unread", protocol, kind, strings.NewReader(body)).ok(w, "ran")
			}
		}
	})
}

// A body that was decompressed, or that was read and put back, counts as whole.
func TestBodyThatWasPutBack(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByJSON("order"), WithIdempotency(true, NoSender))
		r := router()
		echo := func(c *gin.Context) { b, _ := c.GetRawData(); c.String(200, "%d", len(b)) }

		r.POST("/decompressed", func(c *gin.Context) { // as gin-contrib/gzip does
			z := must(gzip.NewReader(c.Request.Body))
			c.Request.Header.Del("Content-Encoding")
			c.Request.Header.Del("Content-Length")
			c.Request.Body = z
		}, m.Lock, echo)

		r.POST("/restored", func(c *gin.Context) {
			b := must(io.ReadAll(c.Request.Body))
			c.Request.Body = io.NopCloser(strings.NewReader(string(b)))
			_ = c.Request.FormValue("q")
		}, m.Lock, echo)

		r.POST("/query", func(c *gin.Context) { _ = c.Request.ParseForm(); _ = c.Query("q") }, m.Lock, echo)

		s := w.serve(r)
		body := forms["application/json"]
		var zipped strings.Builder
		z := gzip.NewWriter(&zipped)
		io.WriteString(z, body)
		z.Close()

		for _, protocol := range protocols {
			for path, body := range map[string]string{"/decompressed": zipped.String(), "/restored": body, "/query": body} {
				s.do(context.Background(), protocol, "POST", path, body, "Idempotency-Key", "k"+protocol[5:], "Content-Type", "application/json").ok(w, fmt.Sprint(len(forms["application/json"])))
			}
		}
	})
}

// A request whose body was sent empty is not refused.
func TestEmptyBodies(t *testing.T) {
	bubble(t, 1, func(w *world) {
		r := router()
		r.POST("/orders", middleware(w, w.locker, WithIdempotency(true, NoSender)).Lock, text("ran"))
		s := w.serve(r)
		for _, protocol := range protocols {
			s.do(context.Background(), protocol, "POST", "/orders", "", "Idempotency-Key", "k"+protocol[5:]).ok(w, "ran")
		}
		call(r, "POST", "/orders", "", "Idempotency-Key", "k").ok(w, "ran")
		req := httptest.NewRequest("POST", "/orders", nil)
		req.Header.Set("Idempotency-Key", "k2")
		serveWith(r, req).ok(w, "ran")
	})
}

// A client that waits for 100-continue is refused before it sends a body that is too large.
func TestTooLargeABodyIsNotAskedFor(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithBodyLimit(100))
		s := w.serve(mount(m.Lock, text("ran")))
		conn := must(s.dial())
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /orders/1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n")
		in := bufio.NewReader(conn)
		first := must(http.ReadResponse(in, nil))
		if first.StatusCode != 413 {
			w.Errorf("%d", first.StatusCode)
		}
		conn.Close()

		conn = must(s.dial())
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /orders/1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
		in = bufio.NewReader(conn)
		if asked := must(http.ReadResponse(in, nil)); asked.StatusCode != 100 {
			w.Errorf("%d", asked.StatusCode)
		}
		fmt.Fprint(conn, "body")
		replyOf(http.ReadResponse(in, nil)).ok(w, "ran")
	})
}

// A goroutine of a handler may still read the body when the handler has returned, as in a reverse proxy whose upstream
// responds early. The function of WithReply still gets the whole body if the lease was lost meanwhile.
func TestBodyThatIsReadForLonger(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"), WithReply(func(rw http.ResponseWriter, r *http.Request, refusal Refusal) {
			if b, err := io.ReadAll(r.Body); err != nil || string(b) != "body" {
				w.Errorf("the body is %q, %v", b, err)
			}
			refusal.Write(rw)
		}))
		var all sync.WaitGroup
		h := mount(m.Lock, func(c *gin.Context) {
			body := c.Request.Body
			all.Go(func() { _, _ = io.Copy(io.Discard, body) })
			expire(c.Request.Context())
		})
		call(h, "PUT", "/orders/1", "body").expect(w, 503, EventLost)
		all.Wait()
	})
}
