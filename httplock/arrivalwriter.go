package httplock

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"time"
)

// An arrivalWriter is the ResponseWriter of an arrival: an http1Writer or an http2Writer. Together they have the
// methods of the two writers of net/http. There is no Unwrap method, because it would lead past the arrival.
type arrivalWriter interface {
	http.ResponseWriter
	arrived() *arrival
}

// An http2Writer has the methods of the writer of an HTTP/2 server. It also stands for writers that are not known.
type http2Writer struct{ arrival }

// An http1Writer has the methods of the writer of an HTTP/1 server.
type http1Writer struct{ arrival }

func newArrivalWriter(outer http.ResponseWriter) arrivalWriter {
	if _, ok := outer.(http.Hijacker); ok {
		return &http1Writer{arrival{at: time.Now(), outer: outer}}
	}
	return &http2Writer{arrival{at: time.Now(), outer: outer}}
}

// outward yields w and the writers further out, as far as Unwrap methods lead.
func outward(w http.ResponseWriter) iter.Seq[http.ResponseWriter] {
	return func(yield func(http.ResponseWriter) bool) {
		for yield(w) {
			switch inner := w.(type) {
			case interface{ Unwrap() http.ResponseWriter }:
				w = inner.Unwrap()
			case arrivalWriter:
				w = inner.arrived().outer
			default:
				return
			}
		}
	}
}

func (a *arrival) arrived() *arrival { return a }

func (a *arrival) Header() http.Header { return a.outer.Header() }

func (a *arrival) WriteHeader(status int) {
	begins, err := a.send(status)
	if err == nil && !begins { // it is informational, or invalid, or comes too late
		a.outer.WriteHeader(status)
	}
}

func (a *arrival) Write(b []byte) (int, error) {
	if _, err := a.send(http.StatusOK); err != nil {
		return 0, err
	}
	return a.outer.Write(b)
}

func (a *arrival) WriteString(s string) (int, error) {
	if _, err := a.send(http.StatusOK); err != nil {
		return 0, err
	}
	return io.WriteString(a.outer, s)
}

func (a *arrival) Flush() { _ = a.FlushError() } // http.Flusher has no error

func (a *arrival) FlushError() error {
	if _, err := a.send(http.StatusOK); err != nil {
		return err
	}
	return http.NewResponseController(a.outer).Flush()
}

func (a *arrival) SetReadDeadline(t time.Time) error {
	return a.control(func(outer *http.ResponseController) error { return outer.SetReadDeadline(t) })
}

func (a *arrival) SetWriteDeadline(t time.Time) error {
	return a.control(func(outer *http.ResponseController) error { return outer.SetWriteDeadline(t) })
}

func (a *arrival) EnableFullDuplex() error {
	return a.control(func(outer *http.ResponseController) error { return outer.EnableFullDuplex() })
}

// control changes the connection by f, unless it may serve another request by now.
func (a *arrival) control(f func(outer *http.ResponseController) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.isOver {
		return errHandlerReturned
	}
	return f(http.NewResponseController(a.outer))
}

// CloseNotify is for gin, which requires it. If the writer further out has no such method, the channel is nil.
func (a *arrival) CloseNotify() <-chan bool {
	outer, ok := a.outer.(interface{ CloseNotify() <-chan bool })
	if !ok {
		return nil
	}
	return outer.CloseNotify()
}

func (w *http2Writer) Push(target string, opts *http.PushOptions) error {
	pusher, ok := w.outer.(http.Pusher)
	if !ok {
		return http.ErrNotSupported
	}
	return pusher.Push(target, opts)
}

// ReadFrom is for middlewares that take only an io.ReaderFrom for the server's own ResponseWriter. Unlike net/http's, it
// copies files through memory: a copy in one piece would not notice when handlers begin.
func (w *http1Writer) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{w}, src)
}

func (w *http1Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if err := w.hijack(); err != nil {
		return nil, nil, err
	}

	conn, rw, err := http.NewResponseController(w.outer).Hijack()
	if err != nil && !errors.Is(err, http.ErrHijacked) {
		w.hijackFailed()
	}
	return conn, rw, err
}
