package httplock

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
)

// A server serves a handler in a bubble, over pipes.
type server struct {
	*http.Server
	conns chan net.Conn
	over  chan struct{}
	h2    http.Transport
}

// serve serves h until the end of the bubble.
func (w *world) serve(h http.Handler) *server { return w.serveWith(&http.Server{Handler: h}) }

func (w *world) serveWith(h *http.Server) *server {
	s := &server{conns: make(chan net.Conn), over: make(chan struct{})}
	s.Server = h
	s.ErrorLog, s.Protocols = log.New(io.Discard, "", 0), new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)

	s.h2.Protocols = new(http.Protocols)
	s.h2.Protocols.SetUnencryptedHTTP2(true)
	s.h2.DialContext = func(context.Context, string, string) (net.Conn, error) { return s.dial() }

	go s.Serve(s)

	w.Cleanup(func() {
		s.h2.CloseIdleConnections()
		s.Server.Close()
	})
	return s
}

func (s *server) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.over:
		return nil, net.ErrClosed
	}
}

func (s *server) Close() error   { close(s.over); return nil }
func (s *server) Addr() net.Addr { return &net.TCPAddr{} }

func (s *server) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.conns <- theirs:
		return ours, nil
	case <-s.over:
		return nil, net.ErrClosed
	}
}

// protocols has the protocols of clients.
var protocols = []string{"HTTP/1.0", "HTTP/1.1", "HTTP/2.0"}

// do sends a request over a protocol. Empty headers are left out.
func (s *server) do(ctx context.Context, protocol, method, path, body string, header ...string) reply {
	req := must(http.NewRequestWithContext(ctx, method, "http://example.com"+path, strings.NewReader(body)))
	for i := 0; i < len(header); i += 2 {
		if header[i+1] != "" {
			req.Header.Add(header[i], header[i+1])
		}
	}
	return s.roundTrip(protocol, req, 0)
}

// roundTrip sends req over a protocol. It pauses for stall in the middle of the body.
func (s *server) roundTrip(protocol string, req *http.Request, stall time.Duration) reply {
	half := int(req.ContentLength) / 2
	if protocol == "HTTP/2.0" {
		if stall > 0 {
			body := req.Body
			req.Body = io.NopCloser(io.MultiReader(io.LimitReader(body, int64(half)), pausing(stall), body))
		}
		return replyOf(s.h2.RoundTrip(req))
	}

	conn, err := s.dial()
	if err != nil {
		return reply{err: err}
	}
	defer conn.Close()
	stop := context.AfterFunc(req.Context(), func() { conn.Close() })
	defer stop()

	var out bytes.Buffer
	req.Close = true
	req.Write(&out)
	sent := bytes.Replace(out.Bytes(), []byte("HTTP/1.1\r\n"), []byte(protocol+"\r\n"), 1)

	go func() {
		conn.Write(sent[:len(sent)-half])
		time.Sleep(stall)
		conn.Write(sent[len(sent)-half:])
	}()

	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, req)
	for err == nil && res.StatusCode < 200 { // informational responses
		res, err = http.ReadResponse(in, req)
	}
	return replyOf(res, err)
}

// A pausing reader is empty. Read returns after a pause.
type pausing time.Duration

func (p pausing) Read([]byte) (int, error) { time.Sleep(time.Duration(p)); return 0, io.EOF }

func replyOf(res *http.Response, err error) reply {
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	began := time.Now()
	b, err := io.ReadAll(res.Body)
	for name, values := range res.Trailer {
		res.Header["Trailer: "+name] = values
	}
	return reply{res.StatusCode, res.Header, string(b), err, res.Proto, began}.unzipped()
}

// A host is a way to serve a handler: a router, with other middleware around the Lock.
type host struct {
	name    string
	plain   bool // there is no Recovery around the Lock
	hides   bool // the Lock cannot reach the server's connection
	inside  bool // there is a Recovery inside the Lock
	handler func(m *Middleware, h http.HandlerFunc) http.Handler
}

// recovery is a Recovery that swallows http.ErrAbortHandler, as gin's does from 1.12 on.
func recovery(c *gin.Context) {
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				c.AbortWithStatus(http.StatusInternalServerError)
			}
			c.Abort()
		}
	}()
	c.Next()
}

// lockOf returns the Lock of m, or no middleware if m is nil.
func lockOf(m *Middleware) gin.HandlerFunc {
	if m == nil {
		return func(*gin.Context) {}
	}
	return m.Lock
}

const hostPath = "/orders/:id"

// mount serves handlers on two routes.
func mount(handlers ...gin.HandlerFunc) http.Handler {
	r := gin.New()
	r.Any(hostPath, handlers...)
	r.Any("/refunds/:id", handlers...)
	return r
}

func mux(m *Middleware, h http.HandlerFunc) http.Handler {
	if m == nil {
		return h
	}
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", m.LockHandler(h))
	mux.Handle("/refunds/{id}", m.LockHandler(h))
	return mux
}

// The hosts' Recovery has no writer: with one, it reads the source files of the stack at each panic.
var hosts = []host{
	{"net/http", true, false, false, mux},
	{"gin", true, false, false, func(m *Middleware, h http.HandlerFunc) http.Handler {
		return mount(lockOf(m), gin.WrapF(h))
	}},
	{"gin, Recovery", false, false, false, func(m *Middleware, h http.HandlerFunc) http.Handler {
		return mount(gin.RecoveryWithWriter(nil), lockOf(m), gin.WrapF(h))
	}},
	{"gin, Recovery that swallows", false, false, false, func(m *Middleware, h http.HandlerFunc) http.Handler {
		return mount(recovery, lockOf(m), gin.WrapF(h))
	}},
	{"gin, Recovery inside", true, false, true, func(m *Middleware, h http.HandlerFunc) http.Handler {
		return mount(lockOf(m), gin.RecoveryWithWriter(nil), gin.WrapF(h))
	}},
	{"gin, gzip", false, true, false, func(m *Middleware, h http.HandlerFunc) http.Handler {
		return mount(compress, gin.RecoveryWithWriter(nil), lockOf(m), gin.WrapF(h))
	}},
	{"http.TimeoutHandler", true, true, false, func(m *Middleware, h http.HandlerFunc) http.Handler {
		return http.TimeoutHandler(mux(m, h), timeout, "late")
	}},
}

// timeout is the timeout of http.TimeoutHandler.
const timeout = time.Hour

// A compressing writer has no Unwrap, as the writer of gin-contrib/gzip.
type compressing struct {
	gin.ResponseWriter
	zip *gzip.Writer
}

func (w *compressing) Write(b []byte) (int, error) {
	w.Header().Del("Content-Length")
	return w.zip.Write(b)
}

func (w *compressing) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// zipWriters has the compressors that are not in use, because a new one takes nearly a megabyte.
var zipWriters = sync.Pool{New: func() any { return must(gzip.NewWriterLevel(nil, gzip.HuffmanOnly)) }}

func compress(c *gin.Context) {
	zip := zipWriters.Get().(*gzip.Writer)
	defer zipWriters.Put(zip)
	defer zip.Reset(nil)
	zip.Reset(c.Writer)
	w := &compressing{c.Writer, zip}
	c.Header("Content-Encoding", "gzip")
	c.Writer = w
	c.Next()
	c.Writer.Header().Del("Content-Length")
	w.zip.Close()
}

// unzipped returns the response as a client gets it that decompresses.
func (r reply) unzipped() reply {
	if r.header.Get("Content-Encoding") == "gzip" && r.err == nil && r.body != "" {
		if z, err := gzip.NewReader(strings.NewReader(r.body)); err != nil {
			r.err = err
		} else {
			b, err := io.ReadAll(z)
			r.body, r.err = string(b), err
		}
	}
	return r
}

// everywhere runs f for each host and protocol, with and without Arrived around the host.
func everywhere(w *world, m *Middleware, h http.HandlerFunc, f func(of string, host host, s *server, protocol string)) {
	for _, host := range hosts {
		plain, guarded := w.serve(host.handler(m, h)), w.serve(Arrived(host.handler(m, h)))
		for _, protocol := range protocols {
			f(fmt.Sprintf("%s, %s", host.name, protocol), host, plain, protocol)
			f(fmt.Sprintf("Arrived, %s, %s", host.name, protocol), host, guarded, protocol)
		}
	}
}
