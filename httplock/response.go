package httplock

import (
	"bufio"
	"maps"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// A response is what the handlers write to. It sends nothing once the lease is lost.
type response struct {
	gin.ResponseWriter
	lost func() bool

	state responseState
	begun bool        // the handler has begun its answer: status and headers stand
	old   http.Header // what the headers were, for a reply in place of the handler's

	limit  int // of what is kept back
	status int
	body   []byte
}

type responseState uint8

const (
	keeping   responseState = iota // the answer is kept back
	streaming                      // it goes out as it comes
	hijacked                       // the handler has taken the connection over
)

func newResponse(x *exchange) *response {
	outer := x.c.Writer
	w := &response{ResponseWriter: outer, lost: x.lost, begun: outer.Written(), old: outer.Header().Clone(), limit: x.m.buffer, status: outer.Status()}
	if x.once != nil && w.limit == 0 {
		w.limit = 1 << 20
	}
	if w.limit == 0 || w.begun {
		w.state = streaming
	}
	return w
}

// sent reports whether something of an answer that goes out as it comes has been sent.
func (w *response) sent() bool { return w.state == streaming && w.begun }

func (w *response) Write(b []byte) (int, error) {
	if w.state == keeping && len(w.body)+len(b) <= w.limit {
		w.begun = true
		w.body = append(w.body, b...)
		return len(b), nil
	}
	if w.lost() {
		return 0, core.ErrLost
	}
	w.send()
	w.begun = true
	return w.ResponseWriter.Write(b)
}

func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *response) WriteHeader(status int) {
	switch {
	case w.state != keeping:
		w.ResponseWriter.WriteHeader(status)
	case !w.begun && status > 0:
		w.status = status
	}
}

func (w *response) WriteHeaderNow() { w.begin(w.ResponseWriter.WriteHeaderNow) }

func (w *response) Flush() { w.begin(w.ResponseWriter.Flush) }

// begin begins the answer, by send unless it is kept back.
func (w *response) begin(send func()) {
	switch {
	case w.state == keeping:
		w.begun = true
	case !w.lost():
		w.begun = true
		send()
	}
}

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.lost() {
		return nil, nil, core.ErrLost
	}
	conn, buffered, err := w.ResponseWriter.Hijack()
	if err == nil {
		w.state = hijacked
	}
	return conn, buffered, err
}

func (w *response) Status() int {
	if w.state == keeping {
		return w.status
	}
	return w.ResponseWriter.Status()
}

func (w *response) Written() bool {
	if w.state == keeping {
		return w.begun
	}
	return w.ResponseWriter.Written()
}

func (w *response) Size() int {
	if w.state == keeping && w.begun {
		return len(w.body)
	}
	return w.ResponseWriter.Size()
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// send sends what was kept back, and keeps nothing more.
func (w *response) send() {
	if w.state != keeping {
		return
	}
	w.state = streaming
	w.ResponseWriter.WriteHeader(w.status)
	if w.begun {
		w.ResponseWriter.WriteHeaderNow()
		_, _ = w.ResponseWriter.Write(w.body) // the client may be gone; nobody is left to tell
	}
}

// discard drops the handler's answer, of which nothing was sent, headers included.
func (w *response) discard() {
	w.state, w.body = streaming, nil
	h := w.Header()
	clear(h)
	maps.Copy(h, w.old)
}
