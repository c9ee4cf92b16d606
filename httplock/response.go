package httplock

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
)

// How much of an answer is kept back: of one that may be streamed then, and of one that may not.
const streamsFrom, mostKept = 1 << 20, 16 << 20

// A response is what an answer is written to, by a handler or in its place. What becomes of it is in the table of life.
type response struct {
	x   *exchange
	ctx context.Context // of who writes

	state     state
	header    http.Header // of its own, so that nothing of a dropped answer is left
	fixed     http.Header // as it was when the answer began
	status    int
	announced int64 // by the Content-Length of a body; -1 = not at all
	size      int64 // of what was written
	body      []byte
	streams   bool // the answer may be streamed

	connection connection // of the client
}

func newResponse(ctx context.Context, x *exchange, status int) *response {
	return &response{x: x, ctx: ctx, header: maps.Clone(x.w.Header()), status: status, announced: -1}
}

// on changes the state, and does what that is for.
func (w *response) on(h happening) {
	was := w.state
	switch w.state = was.after(h); w.state {
	case was:
	case kept:
		w.begin()
	case streaming:
		w.send(was)
	case sent:
		if was != streaming {
			w.send(was)
		}
		for name, values := range w.header {
			if _, before := w.fixed[name]; !before { // a trailer, or nothing that net/http sends
				w.x.w.Header()[name] = values
			}
		}
	case broken:
		// Panic afterwards: without it, everything further out would believe that all went well.
		w.forget()
		if err := w.connection.cut(); err != nil {
			w.x.report(EventMisconfigured, fmt.Errorf("the response must be cut off, and the connection could not be broken: %w", err))
		}
	default:
		w.forget()
	}
}

// begin fixes the header: what is set from now on is no part of the answer, except trailers.
func (w *response) begin() {
	if w.status < 100 || w.status > 999 {
		w.state = open
		panic(fmt.Sprintf("httplock: invalid status code %d", w.status)) // as net/http does, but before it is recorded
	}
	w.fixed = maps.Clone(w.header)
	length := cmp.Or(w.fixed.Get("Content-Length"), "-1") // an error would cost more
	if n, err := strconv.ParseInt(length, 10, 64); err == nil && bodyAllowed(w.status) {
		w.announced = n
	}
	w.streams = w.streams && bodyAllowed(w.status)
}

// bodyAllowed reports whether the client expects a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// send sends the header and what was kept back.
func (w *response) send(was state) {
	h := w.x.w.Header()
	clear(h)
	maps.Copy(h, w.fixed)
	h.Del("Transfer-Encoding") // with "identity" the end of the connection would end the body
	if w.state == streaming {
		h.Del("Content-Length") // with it the client might have all before the lease is settled
	}
	if w.x.gin != nil || was != open { // where nothing has begun, whoever is further out may answer
		w.x.w.WriteHeader(w.status)
	}
	if was != open {
		_, _ = w.x.w.Write(w.body) // also of nothing, so that gin counts it as written; the client may be gone
	}
	w.forget()
}

// forget drops what is kept back.
func (w *response) forget() {
	w.x.m.admission.use(memory, -len(w.body), 0)
	w.body = nil
}

var errTooLarge, errEnded = fmt.Errorf("httplock: the answer is larger than the %d MiB that can be held back", mostKept>>20), errors.New("httplock: the handler has returned")

var tooLarge = &rejection{kind: EventAnswerTooLarge, err: errTooLarge}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	hint := status/100 == 1 && status != http.StatusSwitchingProtocols // of an answer to come; none is sent
	if w.state == open && !hint && (status > 0 || w.x.gin == nil) {
		if w.status = status; w.x.gin == nil {
			w.on(begun)
		}
	}
}

func (w *response) Write(b []byte) (int, error) {
	w.on(begun)
	n, err := int64(len(b)), w.x.lost()
	switch {
	case err != nil:
		return 0, err
	case n > 0 && !bodyAllowed(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.announced >= 0 && w.size+n > w.announced:
		return 0, http.ErrContentLength
	case w.state != kept:
	case w.streams && w.size+n > streamsFrom:
		w.on(outgrown)
	case w.size+n > mostKept:
		w.on(overflow)
	}
	w.size += n
	switch w.state {
	case kept:
		w.body = append(w.body, b...)
		w.x.m.admission.use(memory, len(b), math.MaxInt) // what a handler that runs has done is not refused
		return len(b), nil
	case streaming:
		return w.x.w.Write(b)
	case oversized:
		return 0, errTooLarge
	}
	return 0, errEnded
}

func (w *response) Flush() { _ = w.FlushError() } // http.Flusher has no error

func (w *response) FlushError() error {
	w.on(begun)
	if _, typed := w.fixed["Content-Type"]; w.state == kept && w.size == 0 && !typed {
		w.fixed["Content-Type"] = nil // net/http looks for one in the first bytes that it sends with the header
	}
	if err := w.x.lost(); err != nil || !w.streams {
		return err
	}
	if w.on(flushed); w.state != streaming {
		return nil
	}
	return http.NewResponseController(w.x.w).Flush()
}

// SetWriteDeadline is for http.ResponseController. There is no Unwrap, which would lead past the response.
func (w *response) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.x.w).SetWriteDeadline(t)
}

// The rest is for gin.
var _ gin.ResponseWriter = (*response)(nil)

func (w *response) WriteHeaderNow() { w.on(begun) }

func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *response) Status() int { return w.status }

func (w *response) Written() bool { return w.state != open }

func (w *response) Size() int { return int(w.size) }

func (w *response) Pusher() http.Pusher { return nil }

// CloseNotify ends gin's Context.Stream with the context of the handler.
func (w *response) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.ctx, func() { gone <- true })
	return gone
}

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}
