package httplock

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A writer is what the handlers of a router write to, such as a gin.ResponseWriter.
type writer interface {
	http.ResponseWriter
	http.Flusher
	http.Hijacker
	Status() int
	Size() int
	Written() bool // the answer has begun: status and headers stand
	WriteHeaderNow()
	WriteString(s string) (int, error)
}

// A response is what the handlers write to. It sends nothing once the lease is lost.
type response struct {
	writer
	x *exchange

	state   responseState
	commits bool        // WriteHeader begins the answer, as with net/http; gin only notes the status
	begun   bool        // the handler has begun its answer: status and headers stand
	old     http.Header // what the headers were, for a reply in place of the handler's

	limit  int  // of what is kept back
	all    bool // an answer that is larger must not be sent
	status int
	body   []byte
}

type responseState uint8

const (
	keeping   responseState = iota // the answer is kept back
	streaming                      // it goes out as it comes
	hijacked                       // the handler has taken the connection over
	oversized                      // more should have been kept back than may be
)

// kept is how much of an answer is kept back if nothing else is said.
const kept = 1 << 20

// newResponse keeps the answer back if that was asked for, if the request is idempotent, and if its connection could not be
// broken after a loss.
func newResponse(x *exchange, least int) *response {
	w := &response{writer: x.w, x: x, begun: x.w.Written(), old: x.w.Header().Clone(), limit: max(x.m.buffer, least), status: x.w.Status()}
	if x.around != nil {
		w.limit = max(w.limit, x.around.keeps)
	}
	w.all = !breakable(x.w)
	if w.all && w.limit == 0 {
		w.limit = kept
	}
	if w.limit == 0 || w.begun {
		w.state = streaming
	}
	return w
}

// breakable reports whether a connection can be broken from w: not if there is something between us and net/http that
// cannot be looked through.
func breakable(w http.ResponseWriter) bool {
	for {
		switch v := w.(type) {
		case interface{ SetWriteDeadline(t time.Time) error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return false
		}
	}
}

// sent reports whether something of an answer that goes out as it comes has been sent.
func (w *response) sent() bool { return w.state == streaming && w.begun }

var errAnswerTooLarge = errors.New("httplock: the answer is larger than what can be kept back (WithBuffer), and its connection could not be broken if the lease were lost")

func (w *response) Write(b []byte) (int, error) {
	switch {
	case w.state == keeping && len(w.body)+len(b) <= w.limit:
		w.begun = true
		w.body = append(w.body, b...)
		return len(b), nil
	case w.state == oversized || w.state == keeping && w.all:
		w.state, w.body = oversized, nil
		return 0, errAnswerTooLarge
	case w.x.lost():
		return 0, core.ErrLost
	}
	w.send()
	w.begun = true
	return w.writer.Write(b)
}

func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *response) WriteHeader(status int) {
	switch {
	case w.commits && informational(status):
		if !w.x.lost() {
			w.writer.WriteHeader(status)
		}
	case w.withheld():
		if !w.begun && status > 0 {
			w.status, w.begun = status, w.commits
		}
	case !w.commits:
		w.writer.WriteHeader(status)
	default:
		w.begin(func() { w.writer.WriteHeader(status) })
	}
}

func (w *response) WriteHeaderNow() { w.begin(w.writer.WriteHeaderNow) }

func (w *response) Flush() { w.begin(w.writer.Flush) }

// begin begins the answer, by send unless it is kept back.
func (w *response) begin(send func()) {
	switch {
	case w.withheld():
		w.begun = true
	case !w.x.lost():
		w.begun = true
		send()
	}
}

// withheld reports whether nothing was sent yet, nor will be before the handler has returned.
func (w *response) withheld() bool { return w.state == keeping || w.state == oversized }

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.x.lost() {
		return nil, nil, core.ErrLost
	}
	conn, buffered, err := w.writer.Hijack()
	if err == nil {
		w.state = hijacked
	}
	return conn, buffered, err
}

func (w *response) Status() int {
	if w.withheld() {
		return w.status
	}
	return w.writer.Status()
}

func (w *response) Written() bool {
	if w.withheld() {
		return w.begun
	}
	return w.writer.Written()
}

func (w *response) Size() int {
	if w.withheld() && w.begun {
		return len(w.body)
	}
	return w.writer.Size()
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.writer }

// send sends what was kept back, and keeps nothing more.
func (w *response) send() {
	if w.state != keeping {
		return
	}
	w.state = streaming
	w.writer.WriteHeader(w.status)
	if w.begun {
		w.writer.WriteHeaderNow()
		_, _ = w.writer.Write(w.body) // the client may be gone; nobody is left to tell
	}
}

// discard drops the handler's answer, of which nothing was sent, headers included.
func (w *response) discard() {
	w.state, w.body = streaming, nil
	h := w.Header()
	clear(h)
	maps.Copy(h, w.old)
}

// abort breaks the connection, so that the client does not take the answer for complete. The panic alone would
// not do it where gin.Recovery swallows it and net/http then ends the answer as if nothing had happened; the
// deadline alone would have everything further out believe that all went well.
func (w *response) abort() {
	if err := http.NewResponseController(w.writer).SetWriteDeadline(time.Unix(1, 0)); err != nil {
		w.x.m.locker.Logger().Error("httplock: the connection of an answer could not be broken whose lock was lost", "route", w.x.route, "err", err)
	}
	panic(http.ErrAbortHandler)
}
