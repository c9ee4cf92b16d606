package httplock

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
	"github.com/lockkit/lockkit/internal/race"
)

// stopsAfterASecond is a middleware that stops waiting for its handlers after a second, and gives them its own
// ResponseWriter. It sends to over when they have returned.
func stopsAfterASecond(h http.Handler, over chan<- bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()

		go func() {
			defer func() { _ = recover(); over <- true }()
			h.ServeHTTP(w, r.WithContext(ctx))
		}()
		<-ctx.Done()
		http.Error(w, "late", http.StatusGatewayTimeout)
	})
}

// A pooledWriter compresses with a compressor that serves one request after the other.
type pooledWriter struct {
	http.ResponseWriter
	zip *gzip.Writer
}

func (w pooledWriter) Write(b []byte) (int, error) { return w.zip.Write(b) }

// An openPooledWriter also lets Lock reach the connection, so that responses are streamed.
type openPooledWriter struct{ pooledWriter }

func (w openPooledWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w openPooledWriter) Flush() { _ = w.zip.Flush(); flushes(w.ResponseWriter) }

func pooled(h http.Handler, open bool) http.Handler {
	pool := make(chan *gzip.Writer, 1)
	pool <- gzip.NewWriter(nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		zip := <-pool
		defer func() { pool <- zip }()

		zip.Reset(w)
		w.Header().Set("Content-Encoding", "gzip")
		inner := pooledWriter{w, zip}
		if open {
			h.ServeHTTP(openPooledWriter{inner}, r)
		} else {
			h.ServeHTTP(inner, r)
		}
		zip.Close()
	})
}

// With Arrived, what a handler writes does not reach the next request if a middleware has not waited for the handler,
// although the writer of another middleware then belongs to the next request.
func TestResponseAfterTheRequest(t *testing.T) {
	race.SkipSweep(t) // two goroutines use a writer of net/http
	for _, open := range []bool{false, true} {
		bubbleOf(t, fmt.Sprint("open ", open), 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"))
			over, goOn, begun, resume := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
			h := http.NewServeMux()
			h.Handle("/orders/", stopsAfterASecond(mux(m, func(rw http.ResponseWriter, r *http.Request) {
				io.WriteString(rw, "first of A;")
				flushes(rw)
				<-goOn
				io.WriteString(rw, "second of A;")
				flushes(rw)
				rw.Header().Set(http.TrailerPrefix+"X-Late", "A")
			}), over))
			h.HandleFunc("/b", func(rw http.ResponseWriter, _ *http.Request) {
				io.WriteString(rw, "b1;")
				begun <- true
				<-resume
				io.WriteString(rw, "b2")
			})
			s := w.serve(Arrived(pooled(h, open)))

			for _, protocol := range protocols {
				_ = s.do(context.Background(), protocol, "PUT", "/orders/1", "")
				b := background(func() reply { return s.do(context.Background(), protocol, "GET", "/b", "") })
				<-begun
				goOn <- true
				<-over
				resume <- true
				if got := b(); got.body != "b1;b2" || got.err != nil || got.header.Get("X-Late") != "" {
					w.Errorf("%s: %+v", protocol, got)
				}
			}
		})
	}
}

// With Arrived, a handler that its middleware has not waited for cannot change the connection of the next request.
func TestDeadlinesAfterTheRequest(t *testing.T) {
	race.SkipSweep(t) // two goroutines use a writer of net/http
	for name, late := range map[string]func(*http.ResponseController) error{
		"read":   func(c *http.ResponseController) error { return c.SetReadDeadline(time.Now().Add(time.Millisecond)) },
		"write":  func(c *http.ResponseController) error { return c.SetWriteDeadline(time.Now().Add(time.Millisecond)) },
		"duplex": func(c *http.ResponseController) error { return c.EnableFullDuplex() },
	} {
		bubbleOf(t, name, 1, func(w *world) {
			m := middleware(w, w.locker, ByParam("id"))
			over, goOn, begun, resume := make(chan bool), make(chan bool), make(chan bool), make(chan bool)
			h := http.NewServeMux()
			handler := func(rw http.ResponseWriter, _ *http.Request) {
				<-goOn
				if err := late(http.NewResponseController(rw)); err == nil {
					w.Error("no error")
				}
			}
			h.Handle("/orders/", stopsAfterASecond(mux(m, handler), over))
			h.Handle("/free", stopsAfterASecond(http.HandlerFunc(handler), over))
			h.HandleFunc("/b", func(rw http.ResponseWriter, r *http.Request) {
				begun <- true
				<-resume
				time.Sleep(time.Second)
				fmt.Fprint(rw, "b ", r.Context().Err())
			})
			s := w.serve(Arrived(h))
			conn := must(s.dial())
			defer conn.Close()
			in := bufio.NewReader(conn)

			for _, path := range []string{"/orders/1", "/free"} {
				go io.WriteString(conn, "PUT "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
				if got := replyOf(http.ReadResponse(in, nil)); got.status != 504 {
					w.Fatalf("%+v", got)
				}
				go io.WriteString(conn, "GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
				<-begun
				goOn <- true
				<-over
				resume <- true
				replyOf(http.ReadResponse(in, nil)).ok(w, "b <nil>")
			}
		})
	}
}

// The loss of a permit or a lease around Lock counts even if it is not what has ended the context of the request: a
// deadline has, or nothing does.
func TestLossAroundAContextOfAnotherCause(t *testing.T) {
	deadline := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Second)
	}
	detached := func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithoutCancel(ctx), func() {}
	}
	for name, derive := range map[string]func(context.Context) (context.Context, context.CancelFunc){"deadline": deadline, "detached": detached} {
		for _, what := range []string{"permit", "lease"} {
			bubbleOf(t, name+", "+what, 1, func(w *world) {
				locker := w.holding()
				around := locker.Do
				if what == "permit" {
					around = must(semaphore.New(locker, 2)).Do
				}
				m := middleware(w, locker, ByParam("id"), WithIdempotency(false, NoSender))
				runs := 0
				var outer context.Context
				h := mux(m, func(rw http.ResponseWriter, r *http.Request) {
					runs++
					io.WriteString(rw, "own")
					<-outer.Done()
					if name == "detached" && r.Header.Get("Idempotency-Key") != "" {
						<-r.Context().Done() // ends with the holders around
					}
				})
				s := w.serve(Arrived(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					_ = around(r.Context(), "around", func(ctx context.Context) error {
						outer = ctx
						inner, cancel := derive(ctx)
						defer cancel()
						h.ServeHTTP(rw, r.WithContext(inner))
						return nil
					}, core.MaxHold(5*time.Second))
				})))

				for _, key := range []string{"", "k"} {
					for range 2 {
						s.do(context.Background(), "HTTP/1.1", "PUT", "/orders/1", "", "Idempotency-Key", key).expect(w, 503, EventLost)
						time.Sleep(time.Minute)
					}
				}
				if runs != 4 {
					w.Errorf("%d runs", runs)
				}
			})
		}
	}
}

// A function of an option may take a form apart with MultipartReader. The handler still gets the form.
func TestFormsThatAFunctionReadsInParts(t *testing.T) {
	byReader := func(r *http.Request) (string, error) {
		parts, err := r.MultipartReader()
		if err != nil {
			return "", err
		}
		part, err := parts.NextPart()
		if err != nil {
			return "", err
		}
		value, err := io.ReadAll(part)
		return string(value), err
	}
	ginReader := func(r *http.Request) (string, error) {
		if c, ok := GinContext(r); ok {
			r = c.Request
		}
		return byReader(r)
	}

	bubble(t, 1, func(w *world) {
		for _, f := range []func(*http.Request) (string, error){byReader, ginReader} {
			m := middleware(w, w.locker, ByFunc(f))
			for _, host := range hosts[:2] {
				h := host.handler(m, func(rw http.ResponseWriter, r *http.Request) {
					fmt.Fprint(rw, r.FormValue("order"), r.PostForm["order"])
				})
				var body strings.Builder
				form := multipart.NewWriter(&body)
				_ = form.WriteField("order", "5")
				form.Close()
				call(h, "PUT", "/orders/1", body.String(), "Content-Type", form.FormDataContentType()).ok(w, "5[5]")
			}
		}
	})
}
