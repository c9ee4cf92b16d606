package httplock

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// A response is what the handlers write to. It sends nothing once the lease is lost.
type response struct {
	outer http.ResponseWriter
	gin   gin.ResponseWriter // outer, if it is one: WriteHeader then only notes the status; nil = it begins the answer
	x     *exchange

	state  responseState
	begun  bool        // the handler has begun its answer: status and headers stand
	old    http.Header // what the headers were, for a reply in place of the handler's
	status int
	size   int

	limit int  // of what is kept back
	all   bool // an answer that is larger must not be sent
	body  []byte
}

type responseState uint8

const (
	keeping   responseState = iota // the answer is kept back
	streaming                      // it goes out as it comes
	hijacked                       // the handler has taken the connection over
	oversized                      // more should have been kept back than may be
	broken                         // its connection is, after a loss
)

// kept is how much of an answer is kept back if nothing else is said.
const kept = 1 << 20

// newResponse keeps the answer back if that was asked for, if the request is idempotent, and if its connection could not be
// broken after a loss.
func newResponse(x *exchange, least int) *response {
	w := &response{outer: x.w, x: x, status: http.StatusOK, old: x.w.Header().Clone(), limit: max(x.m.buffer, least)}
	if g, ok := x.w.(gin.ResponseWriter); ok {
		w.gin, w.begun, w.status, w.size = g, g.Written(), g.Status(), max(g.Size(), 0)
	}
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

// whole reports whether what is kept back is as long as the handler has said. What is shorter, as where a copy broke off,
// has net/http break the connection.
func (w *response) whole() bool {
	said, err := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64)
	bodiless := w.x.r.Method == http.MethodHead || w.status == http.StatusNoContent || w.status == http.StatusNotModified
	return err != nil || said == int64(len(w.body)) || bodiless
}

// sent reports whether something of an answer that goes out as it comes has been sent.
func (w *response) sent() bool { return w.state == streaming && w.begun }

var errAnswerTooLarge = errors.New("httplock: the answer is larger than what can be kept back (WithBuffer), and its connection could not be broken if the lease were lost")

func (w *response) Header() http.Header { return w.outer.Header() }

func (w *response) Write(b []byte) (int, error) {
	switch {
	case w.state == keeping && len(w.body)+len(b) <= w.limit:
		w.begun = true
		w.body = append(w.body, b...)
		return len(b), nil
	case w.state == oversized || w.state == keeping && w.all:
		w.state, w.body = oversized, nil
		return 0, errAnswerTooLarge
	case w.x.loss() != nil:
		return 0, core.ErrLost
	}
	w.send()
	w.WriteHeaderNow()
	n, err := w.outer.Write(b)
	w.size += n
	return n, err
}

func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *response) WriteHeader(status int) {
	switch {
	case w.begun || status <= 0:
	case w.gin == nil && informational(status):
		if w.x.loss() == nil {
			w.outer.WriteHeader(status)
		}
	case w.gin == nil:
		w.status = status
		w.WriteHeaderNow()
	default:
		if w.status = status; w.state == streaming {
			w.gin.WriteHeader(status)
		}
	}
}

// informational reports whether another status follows.
func informational(status int) bool {
	return status >= 100 && status < 200 && status != http.StatusSwitchingProtocols
}

// WriteHeaderNow begins the answer, which is sent unless it is kept back.
func (w *response) WriteHeaderNow() {
	if w.begun || w.state == streaming && w.x.loss() != nil {
		return
	}
	if w.begun = true; w.state == streaming {
		w.sendHeader()
	}
}

func (w *response) Flush() {
	w.WriteHeaderNow()
	if w.state == streaming && w.x.loss() == nil {
		_ = http.NewResponseController(w.outer).Flush() // not everything can
	}
}

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.x.loss() != nil {
		return nil, nil, core.ErrLost
	}
	conn, buffered, err := http.NewResponseController(w.outer).Hijack()
	if err == nil {
		w.state = hijacked
	}
	return conn, buffered, err
}

func (w *response) Status() int   { return w.status }
func (w *response) Written() bool { return w.begun }

func (w *response) Size() int {
	if !w.begun {
		return -1
	}
	return w.size + len(w.body)
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.outer }

// send sends what was kept back, and keeps nothing more.
func (w *response) send() {
	if w.state != keeping {
		return
	}
	w.state = streaming
	switch {
	case w.begun:
		w.sendHeader()
		w.size, _ = w.outer.Write(w.body) // the client may be gone; nobody is left to tell
		w.body = nil
	case w.gin != nil:
		w.gin.WriteHeader(w.status)
	}
}

func (w *response) sendHeader() {
	w.outer.WriteHeader(w.status)
	if w.gin != nil {
		w.gin.WriteHeaderNow()
	}
}

// discard drops the handler's answer, of which nothing was sent, headers included.
func (w *response) discard() {
	w.state, w.body = streaming, nil
	h := w.Header()
	clear(h)
	maps.Copy(h, w.old)
}

// abort breaks the connection, so that the client does not take the answer for complete. Panic afterwards. The panic alone
// would not do it where gin.Recovery swallows it and net/http then ends the answer as if nothing had happened; the deadline
// alone would have everything further out believe that all went well.
func (w *response) abort() error {
	w.state = broken
	return http.NewResponseController(w.outer).SetWriteDeadline(time.Unix(1, 0))
}
