package httplock

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

// A delegate supports http.ResponseController by methods instead of Unwrap.
type delegate struct{ http.ResponseWriter }

func (d delegate) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(d.ResponseWriter).SetWriteDeadline(t)
}
func (d delegate) FlushError() error { return http.NewResponseController(d.ResponseWriter).Flush() }
func (d delegate) Flush()            { _ = d.FlushError() }
func (d delegate) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(d.ResponseWriter).Hijack()
}

// A ginDelegate is a delegate for gin.
type ginDelegate struct{ gin.ResponseWriter }

func (d ginDelegate) SetWriteDeadline(t time.Time) error {
	return delegate{d.ResponseWriter}.SetWriteDeadline(t)
}
func (d ginDelegate) FlushError() error { return delegate{d.ResponseWriter}.FlushError() }

// A liar has a method that does nothing and returns no error.
type liar struct{ gin.ResponseWriter }

func (liar) SetWriteDeadline(time.Time) error { return nil }

// wrapped returns a middleware that wraps the writer for the handlers after it.
func wrapped(wrap func(gin.ResponseWriter) gin.ResponseWriter) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func(w gin.ResponseWriter) { c.Writer = w }(c.Writer)
		c.Writer = wrap(c.Writer)
		c.Next()
	}
}

// lifts is a middleware that sets a write deadline for each request, and lifts it afterwards, as keep-alive requires.
func lifts(c *gin.Context) {
	control := http.NewResponseController(c.Writer)
	_ = control.SetWriteDeadline(time.Now().Add(time.Hour))
	defer control.SetWriteDeadline(time.Time{})
	c.Next()
}

// An unwrapping writer has the method Unwrap, as those of chi and echo.
type unwrapping struct{ http.ResponseWriter }

func (u unwrapping) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// A buffered writer keeps the whole response, as middleware does that compresses it or computes an ETag.
type buffered struct {
	unwrapping
	all []byte
}

func (b *buffered) Write(p []byte) (int, error) {
	b.all = append(b.all, p...)
	return len(p), nil
}

func (b *buffered) Flush() {}

// surroundings returns functions, by name, that put middleware and writers around a Lock.
func surroundings() map[string]func(lock gin.HandlerFunc, h gin.HandlerFunc) http.Handler {
	gins := func(around ...gin.HandlerFunc) func(lock, h gin.HandlerFunc) http.Handler {
		return func(lock, h gin.HandlerFunc) http.Handler { return mount(append(around, lock, h)...) }
	}

	recovers := gin.RecoveryWithWriter(io.Discard)
	delegates := wrapped(func(w gin.ResponseWriter) gin.ResponseWriter { return ginDelegate{w} })
	lies := wrapped(func(w gin.ResponseWriter) gin.ResponseWriter { return liar{w} })
	around := func(wrap func(http.Handler) http.Handler) func(lock, h gin.HandlerFunc) http.Handler {
		return func(lock, h gin.HandlerFunc) http.Handler { return wrap(mount(recovers, lock, h)) }
	}

	return map[string]func(lock, h gin.HandlerFunc) http.Handler{
		"plain":                               gins(),
		"Recovery outside":                    gins(recovers),
		"Recovery outside that swallows":      gins(recovery),
		"deadline lifted":                     gins(lifts, recovers),
		"deadline lifted, Recovery outermost": gins(recovers, lifts),
		"delegate":                            gins(recovers, delegates),
		"delegate around gzip":                gins(compress, delegates, recovers),
		"liar":                                gins(recovers, lies),
		"liar around gzip":                    gins(compress, lies, recovers),
		"gzip":                                gins(recovers, compress),
		"Recovery inside": func(lock, h gin.HandlerFunc) http.Handler {
			return mount(lock, recovers, h)
		},
		"Recovery on both sides": func(lock, h gin.HandlerFunc) http.Handler {
			return mount(recovers, lifts, lock, recovers, h)
		},
		"http.TimeoutHandler": around(func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Hour, "late") }),
		"delegate in http.TimeoutHandler": func(lock, h gin.HandlerFunc) http.Handler {
			return http.TimeoutHandler(mount(recovers, delegates, lock, h), time.Hour, "late")
		},
		"delegate of net/http in http.TimeoutHandler": around(func(h http.Handler) http.Handler {
			return http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(delegate{w}, r) }), time.Hour, "late")
		}),
		"delegate of net/http": around(func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(delegate{w}, r) })
		}),
		"Unwrap": around(func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unwrapping{w}, r) })
		}),
		"Unwrap that leads nowhere": around(func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unwrapping{delegate{w}}, r) })
		}),
		"keeps all of it, with Unwrap": around(func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				kept := &buffered{unwrapping: unwrapping{w}}
				defer func() {
					_ = recover()
					_, _ = w.Write(kept.all)
				}()
				h.ServeHTTP(kept, r)
			})
		}),
		"swallows everything": around(func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { _ = recover() }()
				h.ServeHTTP(w, r)
			})
		}),
	}
}

// half is a handler that sends half of its response, and then loses its lease.
func half(c *gin.Context) {
	c.String(200, "half")
	c.Writer.Flush()
	expire(c.Request.Context())
}

// A stream whose lease is lost never looks complete to the client, whatever is around the Lock: middleware that lifts a
// deadline or swallows a panic, or a writer with a method that does nothing.
func TestLossInAStream(t *testing.T) {
	for name, around := range surroundings() {
		bubbleOf(t, name, 1, func(w *world) {
			h := around(middleware(w, w.holding(), ByParam("id")).Lock, half)
			for _, s := range []*server{w.serve(h), w.serve(Arrived(h))} {
				for _, protocol := range protocols {
					got := s.do(context.Background(), protocol, "PUT", "/orders/1", "")
					if got.whole() || got.err == nil && got.status != 503 {
						w.Errorf("%s: a clean %d %q after a loss", protocol, got.status, got.body)
					}
					time.Sleep(time.Minute) // until the key is free
				}
			}
		})
	}
}

// The same holds over TCP, with and without TLS. This test runs in real time.
func TestLossInAStreamOverTCP(t *testing.T) {
	t.Parallel()
	m := anyKey(t)
	for name, around := range surroundings() {
		loses := around(m.Lock, func(c *gin.Context) {
			if strings.HasPrefix(c.Request.URL.Path, "/orders") {
				half(c)
			}
		})

		for i, h := range []http.Handler{loses, loses, Arrived(loses), Arrived(loses)} {
			secure := i%2 > 0
			s := started(h, secure)
			for _, http2 := range []bool{false, true} {
				client := clientOf(s, secure, http2)
				put := func(path string) reply {
					return replyOf(client.Do(must(http.NewRequestWithContext(t.Context(), "PUT", s.URL+path, nil))))
				}

				if got := put("/refunds/1"); !got.whole() || (got.proto == "HTTP/2.0") != http2 {
					t.Errorf("%s, TLS %v, HTTP/2 %v: %+v without a loss", name, secure, http2, got)
				}
				got := put("/orders/1")
				if got.whole() || got.err == nil && got.status != 503 {
					t.Errorf("%s, TLS %v, HTTP/2 %v: a clean %d %q after a loss", name, secure, http2, got.status, got.body)
				}
			}
			s.Close()
		}
	}
}

// started starts a server over TCP that speaks HTTP/1.1 and HTTP/2.
func started(h http.Handler, secure bool) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog, s.EnableHTTP2 = log.New(io.Discard, "", 0), true
	if secure {
		s.StartTLS()
		return s
	}
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	return s
}

// clientOf returns a client that speaks one protocol only.
func clientOf(s *httptest.Server, secure, http2 bool) *http.Client {
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2 && secure)
	transport.Protocols.SetUnencryptedHTTP2(http2 && !secure)
	transport.ForceAttemptHTTP2 = http2 && secure
	if secure && !http2 {
		transport.TLSClientConfig.NextProtos = nil // the server speaks HTTP/2 if the client offers it
	}
	return &http.Client{Transport: transport}
}

// A stream can be broken at once even if its client does not read: bytes that are still buffered are not sent.
func TestBreakingWaitsForNobody(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		over := make(chan bool)
		s := w.serve(mount(gin.RecoveryWithWriter(io.Discard), func(c *gin.Context) {
			defer close(over)
			c.Next()
		}, m.Lock, func(c *gin.Context) {
			c.String(200, "half")
			c.Writer.Flush()
			c.String(200, strings.Repeat("x", 3000))
			expire(c.Request.Context())
		}))

		conn := must(s.dial())
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /orders/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		must(conn.Read(make([]byte, 4096))) // the client reads the beginning of the stream, and nothing more
		<-over
	})
}

// Server-sent events in response to a POST are sent while the handler writes them. The stream is broken if the lease is
// lost.
func TestStreamedAnswerToAPost(t *testing.T) {
	for _, lose := range []bool{false, true} {
		bubbleOf(t, fmt.Sprintf("lose %v", lose), 1, func(w *world) {
			m := middleware(w, w.holding(), ByParam("id"))
			h := mount(gin.Recovery(), m.Lock, func(c *gin.Context) {
				for i := range 5 {
					c.SSEvent("word", i)
					c.Writer.Flush()
					time.Sleep(time.Second) // in the time of the bubble
				}
				if lose {
					expire(c.Request.Context())
				}
			})

			s := w.serve(h)
			for _, protocol := range protocols[1:] {
				began := time.Now()
				got := s.do(context.Background(), protocol, "POST", "/orders/1", "question")
				if got.began.Sub(began) > 0 || time.Since(began) < 5*time.Second || got.whole() == lose || strings.Count(got.body, "event:word") != 5 {
					w.Errorf("%s: began after %v, took %v: %d %q %v", protocol, got.began.Sub(began), time.Since(began), got.status, got.body, got.err)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// A loss resets its own stream of an HTTP/2 connection. The other streams go on.
func TestLossInOneOfManyStreams(t *testing.T) {
	bubble(t, 1, func(w *world) {
		m := middleware(w, w.holding(), ByParam("id"))
		s := w.serve(mount(gin.RecoveryWithWriter(io.Discard), m.Lock, func(c *gin.Context) {
			for range 5 {
				c.String(200, "event")
				c.Writer.Flush()
				time.Sleep(time.Second) // in the time of the bubble
			}
			if c.Param("id") == "1" {
				expire(c.Request.Context())
				return
			}
			time.Sleep(3 * time.Second)
		}))

		var all []func() reply
		for id := range 4 {
			all = append(all, background(func() reply {
				return s.do(context.Background(), "HTTP/2.0", "PUT", fmt.Sprint("/orders/", id), "")
			}))
		}

		for id, got := range all {
			if got := got(); got.whole() == (id == 1) {
				w.Errorf("%d: %d %q %v", id, got.status, got.body, got.err)
			}
		}
	})
}

// If a stream is broken, requests that the client has sent after it on the same connection neither run nor get a
// response.
func TestLossInAPipeline(t *testing.T) {
	bubble(t, 1, func(w *world) {
		runs := 0
		m := middleware(w, w.holding(), ByParam("id"))
		s := w.serve(mount(gin.RecoveryWithWriter(io.Discard), m.Lock, func(c *gin.Context) { runs++; half(c) }))

		conn := must(s.dial())
		defer conn.Close()
		one := "PUT /orders/%d HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
		go fmt.Fprintf(conn, one+one, 1, 2)

		in := bufio.NewReader(conn)
		res := must(http.ReadResponse(in, nil))
		body, err := io.ReadAll(res.Body)
		rest, _ := io.ReadAll(in)

		if err == nil || string(body) != "half" || len(rest) > 0 || runs != 1 {
			w.Errorf("%q %v, then %q; %d runs", body, err, rest, runs)
		}
	})
}

// connectionOf finds the server's own writer behind writers with Unwrap, and takes no other writer for it.
func TestConnections(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(http.ResponseWriter) http.ResponseWriter
		want bool
	}{
		"bare":            {func(w http.ResponseWriter) http.ResponseWriter { return w }, true},
		"Unwrap":          {func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{unwrapping{w}} }, true},
		"methods":         {func(w http.ResponseWriter) http.ResponseWriter { return delegate{w} }, false},
		"methods, unwrap": {func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{delegate{w}} }, false},
		"Arrived":         {func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{newArrivalWriter(unwrapping{w})} }, true},
		"over": {func(w http.ResponseWriter) http.ResponseWriter {
			guarded := newArrivalWriter(w)
			guarded.arrived().end()
			return guarded
		}, false},
		"a recorder": {func(http.ResponseWriter) http.ResponseWriter { return unwrapping{httptest.NewRecorder()} }, false},
		"nothing":    {func(http.ResponseWriter) http.ResponseWriter { return unwrapping{} }, false},
	} {
		bubbleOf(t, name, 1, func(w *world) {
			s := w.serve(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				_, got := connectionOf(c.wrap(rw))
				fmt.Fprint(rw, got)
			}))
			for _, protocol := range protocols {
				s.do(context.Background(), protocol, "PUT", "/", "").ok(w, fmt.Sprint(c.want))
			}
		})
	}
}
