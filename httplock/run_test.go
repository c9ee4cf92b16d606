package httplock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
)

// The temporary files of an upload are removed when its request is over, as without the middleware.
func TestUploadsLeaveNoFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alone(t, 1, func(w *world) {
		spooled := 0
		parsed := ByFunc(func(r *http.Request) (string, error) { return "key", r.ParseMultipartForm(1) })

		for i, by := range []Option{ByParam("id"), parsed} {
			everywhere(w, middleware(w, w.locker, by, WithIdempotency(false, NoSender)), func(_ http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(1); err != nil {
					w.Error(err)
				}
				files, _ := os.ReadDir(os.TempDir())
				spooled += len(files)
			}, func(of string, host host, s *server, protocol string) {
				if host.name == "http.TimeoutHandler" { // it leaves the files even without the middleware
					return
				}
				for _, key := range []string{"", fmt.Sprintf(`"%s %d"`, of, i)} {
					var body strings.Builder
					form := multipart.NewWriter(&body)
					file, _ := form.CreateFormFile("file", "large")
					fmt.Fprint(file, strings.Repeat("x", 100<<10))
					form.Close()

					spooled = 0
					s.do(context.Background(), protocol, "PUT", "/orders/1", body.String(), "Content-Type", form.FormDataContentType(), "Idempotency-Key", key).ok(w, "")
					synctest.Wait() // until the request is over
					if files, err := os.ReadDir(os.TempDir()); err != nil || len(files) > 0 || spooled != 1 {
						w.Errorf("%s: %d of %d files are left, %v", of, len(files), spooled, err)
					}
				}
			})
		}
	})
}

// If the context of a request ends while the request waits and its client is there, the client gets a refusal. The
// context may end with the server's base context, or at a deadline with a cause.
func TestContextEndsWhileWaiting(t *testing.T) {
	bubble(t, 1, func(w *world) {
		h := hosts[0].handler(middleware(w, w.locker, ByParam("id"), WithMaxWait(time.Hour)), keyOf)
		ctx, shutDown := context.WithCancelCause(context.Background())
		down := w.serveWith(&http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return ctx }})
		slow := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeoutCause(r.Context(), 100*time.Millisecond, errors.New("slow"))
			defer cancel()
			h.ServeHTTP(rw, r.WithContext(ctx))
		}))

		lease := must(w.locker.Acquire(w.Context(), routeKey("/orders/{id}", "1")))

		var waiting []func() reply
		for _, protocol := range protocols {
			waiting = append(waiting, background(func() reply { return down.do(context.Background(), protocol, "PUT", "/orders/1", "") }))
		}

		synctest.Wait()
		shutDown(errors.New("terminated"))
		for _, got := range waiting {
			got().expect(w, 503, EventGone)
		}

		w.nodes[0].Hang()
		for _, protocol := range protocols {
			slow.do(context.Background(), protocol, "PUT", "/orders/2", "").expect(w, 503, EventUnavailable)
		}
		w.nodes[0].Up()
		lease.Release(w.Context())
	})
}

// A client that does not read its stream keeps the key until the server's WriteTimeout, and no longer.
func TestStreamThatNobodyReads(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"), WithMaxWait(time.Minute))
		s := w.serveWith(&http.Server{WriteTimeout: 10 * time.Second, Handler: hosts[0].handler(m, answers["flushes"])})
		conn := must(s.dial())
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /orders/1 HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		start := time.Now()
		got := call(s.Handler, "PUT", "/orders/1", "")
		if took := time.Since(start); !got.whole() || took < 9*time.Second || took > 11*time.Second {
			w.Errorf("%d after %v", got.status, took)
		}
	})
}

// Requests whose bodies stall do not keep others from running: only the bytes that have arrived count.
func TestStalledBodies(t *testing.T) {
	bubble(t, 1, func(w *world) {
		h := hosts[0].handler(middleware(w, w.locker, ByParam("id"), WithMaxWaiters(1)), keyOf)
		for i := range 1000 {
			in, out := io.Pipe()
			req := newRequest("PUT", fmt.Sprint("/orders/", i%3))
			req.Body, req.ContentLength = in, 1<<20
			go serveWith(h, req)
			defer out.CloseWithError(errors.New("reset"))
		}
		synctest.Wait()
		call(h, "PUT", "/orders/1", "body").ok(w, routeKey("/orders/{id}", "1"))
	})
}

// A deadlined writer counts how often its read deadline is set.
type deadlined struct {
	recorder
	set int
}

func (d *deadlined) SetReadDeadline(time.Time) error {
	d.set++
	return nil
}

// The middleware does not set the read deadline, which belongs to the server and to middlewares further out.
func TestReadDeadlineIsLeftAlone(t *testing.T) {
	bubble(t, 1, func(w *world) {
		h := hosts[1].handler(middleware(w, w.locker, ByParam("id")), keyOf)
		d := &deadlined{recorder: recorder{httptest.NewRecorder()}}
		h.ServeHTTP(d, httptest.NewRequest("PUT", "/orders/1", strings.NewReader("body")))
		if d.set != 0 || d.Code != 200 {
			w.Errorf("set %d times, %d", d.set, d.Code)
		}
	})
}

// A request whose body cannot be read to its end is refused: as too large if a middleware further out limits the body,
// and else as broken.
func TestBodyThatBreaksOff(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.locker, ByParam("id"))
		r := router()
		r.Use(func(c *gin.Context) { c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 10) })
		r.POST("/orders/:id", m.Lock, text("ran"))
		call(r, "POST", "/orders/1", "0123456789").ok(w, "ran")
		call(r, "POST", "/orders/1", "0123456789a").expect(w, 413, EventBodyTooLarge)
		conn := must(w.serve(r).dial())
		defer conn.Close()
		fmt.Fprintf(conn, "POST /orders/1 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n")
		got := replyOf(http.ReadResponse(bufio.NewReader(conn), nil))
		got.expect(w, 400, EventBodyBroken)
		if got.header.Get("Retry-After") == "" { // a gateway must not take the refusal for an outcome
			w.Errorf("%v", got.header)
		}
	})
}
