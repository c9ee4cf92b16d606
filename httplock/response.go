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
const streamThreshold, maxBuffered = 1 << 20, 16 << 20

// A response is what an answer is written to, by a handler or in its place. What becomes of it is in the table of life.
type response struct {
	x   *requestState
	ctx context.Context // of who writes

	state         state
	header        http.Header // of its own, so that nothing of a dropped answer is left
	frozen        http.Header // as it was when the answer began
	status        int
	contentLength int64 // by the Content-Length of a body; -1 = not at all
	written       int64 // of what was written
	body          []byte
	canStream     bool // the answer may be streamed

	connection connection // of the client
}

func newResponse(ctx context.Context, rs *requestState, status int) *response {
	return &response{x: rs, ctx: ctx, header: maps.Clone(rs.w.Header()), status: status, contentLength: -1}
}

// on changes the state, and does what that is for.
func (w *response) transition(h trigger) {
	was := w.state
	switch w.state = was.next(h); w.state {
	case was:
	case stateBuffered:
		w.freezeHeader()
	case stateStreaming:
		w.sendBuffered(was)
	case stateSent:
		if was != stateStreaming {
			w.sendBuffered(was)
		}
		for name, values := range w.header {
			if _, before := w.frozen[name]; !before { // a trailer, or nothing that net/http sends
				w.x.w.Header()[name] = values
			}
		}
	case stateBroken:
		// Panic afterwards: without it, everything further out would believe that all went well.
		w.discard()
		if err := w.connection.cut(); err != nil {
			w.x.report(EventMisconfigured, fmt.Errorf("the response must be cut off, and the connection could not be broken: %w", err))
		}
	default:
		w.discard()
	}
}

// begin fixes the header: what is set from now on is no part of the answer, except trailers.
func (w *response) freezeHeader() {
	if w.status < 100 || w.status > 999 {
		w.state = stateOpen
		panic(fmt.Sprintf("httplock: invalid status code %d", w.status)) // as net/http does, but before it is recorded
	}
	w.frozen = maps.Clone(w.header)
	length := cmp.Or(w.frozen.Get("Content-Length"), "-1") // an error would cost more
	if n, err := strconv.ParseInt(length, 10, 64); err == nil && bodyAllowed(w.status) {
		w.contentLength = n
	}
	w.canStream = w.canStream && bodyAllowed(w.status)
}

// bodyAllowed reports whether the client expects a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// send sends the header and what was kept back.
func (w *response) sendBuffered(was state) {
	h := w.x.w.Header()
	clear(h)
	maps.Copy(h, w.frozen)
	h.Del("Transfer-Encoding") // with "identity" the end of the connection would end the body
	if w.state == stateStreaming {
		h.Del("Content-Length") // with it the client might have all before the lease is settled
	}
	if w.x.gin != nil || was != stateOpen { // where nothing has begun, whoever is further out may answer
		w.x.w.WriteHeader(w.status)
	}
	if was != stateOpen {
		_, _ = w.x.w.Write(w.body) // also of nothing, so that gin counts it as written; the client may be gone
	}
	w.discard()
}

// forget drops what is kept back.
func (w *response) discard() {
	w.x.m.admission.use(memoryUse, -len(w.body), 0)
	w.body = nil
}

var errBufferLimit, errHandlerReturned = fmt.Errorf("httplock: the answer is larger than the %d MiB that can be held back", maxBuffered>>20), errors.New("httplock: the handler has returned")

var errResponseTooLarge = &rejection{kind: EventAnswerTooLarge, err: errBufferLimit}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	hint := status/100 == 1 && status != http.StatusSwitchingProtocols // of an answer to come; none is sent
	if w.state == stateOpen && !hint && (status > 0 || w.x.gin == nil) {
		if w.status = status; w.x.gin == nil {
			w.transition(onBegin)
		}
	}
}

func (w *response) Write(b []byte) (int, error) {
	w.transition(onBegin)
	n, err := int64(len(b)), w.x.lostError()
	switch {
	case err != nil:
		return 0, err
	case n > 0 && !bodyAllowed(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.contentLength >= 0 && w.written+n > w.contentLength:
		return 0, http.ErrContentLength
	case w.state != stateBuffered:
	case w.canStream && w.written+n > streamThreshold:
		w.transition(onStreamLimit)
	case w.written+n > maxBuffered:
		w.transition(onBufferLimit)
	}
	w.written += n
	switch w.state {
	case stateBuffered:
		w.body = append(w.body, b...)
		w.x.m.admission.use(memoryUse, len(b), math.MaxInt) // what a handler that runs has done is not refused
		return len(b), nil
	case stateStreaming:
		return w.x.w.Write(b)
	case stateOversized:
		return 0, errBufferLimit
	}
	return 0, errHandlerReturned
}

func (w *response) Flush() { _ = w.FlushError() } // http.Flusher has no error

func (w *response) FlushError() error {
	w.transition(onBegin)
	if _, typed := w.frozen["Content-Type"]; w.state == stateBuffered && w.written == 0 && !typed {
		w.frozen["Content-Type"] = nil // net/http looks for one in the first bytes that it sends with the header
	}
	if err := w.x.lostError(); err != nil || !w.canStream {
		return err
	}
	if w.transition(onFlush); w.state != stateStreaming {
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

func (w *response) WriteHeaderNow() { w.transition(onBegin) }

func (w *response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *response) Status() int { return w.status }

func (w *response) Written() bool { return w.state != stateOpen }

func (w *response) Size() int { return int(w.written) }

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
