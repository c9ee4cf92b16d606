package httplock

import (
	"bufio"
	"maps"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// A response is what the handlers write to. It sends nothing once the lease is lost, and keeps the answer
// back while it is keeping.
type response struct {
	gin.ResponseWriter
	lost func() bool

	sent     bool // something went on to the client
	hijacked bool

	keeping bool
	limit   int
	status  int // of what is kept
	begun   bool
	body    []byte

	before http.Header // what the headers were, for a reply in place of the handler's
}

func newResponse(x *exchange) *response {
	w := &response{ResponseWriter: x.c.Writer, lost: x.lost, limit: x.m.buffer, status: x.c.Writer.Status(), before: x.c.Writer.Header().Clone(), sent: x.c.Writer.Written()}
	if x.once != nil && w.limit == 0 {
		w.limit = 1 << 20
	}
	w.keeping = w.limit > 0
	return w
}

func (w *response) Write(b []byte) (int, error) {
	if w.keeping {
		w.begun = true
		if len(w.body)+len(b) <= w.limit {
			w.body = append(w.body, b...)
			return len(b), nil
		}
		if w.lost() {
			return 0, core.ErrLost
		}
		w.send()
	}
	if w.lost() {
		return 0, core.ErrLost
	}
	w.sent = true
	return w.ResponseWriter.Write(b)
}

func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *response) WriteHeader(status int) {
	switch {
	case !w.keeping:
		w.ResponseWriter.WriteHeader(status)
	case !w.begun && status > 0:
		w.status = status
	}
}

func (w *response) WriteHeaderNow() {
	switch {
	case w.keeping:
		w.begun = true
	case !w.lost():
		w.sent = true
		w.ResponseWriter.WriteHeaderNow()
	}
}

func (w *response) Flush() {
	switch {
	case w.keeping:
		w.begun = true
	case !w.lost():
		w.sent = true
		w.ResponseWriter.Flush()
	}
}

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.lost() {
		return nil, nil, core.ErrLost
	}
	conn, buffered, err := w.ResponseWriter.Hijack()
	if err == nil {
		w.hijacked, w.keeping = true, false
	}
	return conn, buffered, err
}

func (w *response) Status() int {
	if w.keeping {
		return w.status
	}
	return w.ResponseWriter.Status()
}

func (w *response) Written() bool {
	if w.keeping {
		return w.begun
	}
	return w.ResponseWriter.Written()
}

func (w *response) Size() int {
	if w.keeping && w.begun {
		return len(w.body)
	}
	return w.ResponseWriter.Size()
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// send sends what was kept back, and keeps nothing more.
func (w *response) send() {
	if !w.keeping {
		return
	}
	w.keeping = false
	w.ResponseWriter.WriteHeader(w.status)
	if w.begun {
		w.sent = true
		w.ResponseWriter.WriteHeaderNow()
		_, _ = w.ResponseWriter.Write(w.body) // the client may be gone; nobody is left to tell
	}
}

// discard drops the handler's answer, of which nothing was sent, headers included.
func (w *response) discard() {
	w.keeping, w.body = false, nil
	h := w.Header()
	clear(h)
	maps.Copy(h, w.before)
}
