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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// A response is the writer of a handler, or of a response in its place. It holds the response back or streams it, as
// the table transitions says. Only the goroutine of the handler uses it.
type response struct {
	rs  *requestState
	ctx context.Context // of the handler, or of the request

	state     state
	status    int
	hasStatus bool // the handler has set the status
	hasBody   bool // the handler has written a body, which may be empty

	// The header has its own map, so that a response that is dropped leaves nothing in the client's.
	header http.Header
	before http.Header // the client's, as it was before the handlers
	frozen http.Header // a copy of header, made when the response began

	contentLength int64 // as the header announces it; -1 if it does not
	written       int64 // bytes that the handler has written
	body          []byte

	canStream  bool // the response may be streamed
	connection connection

	isHandlers bool // it is the response of the handlers: after a loss they cannot write any more
	isSilent   bool // the handlers have returned without a response, and none was written afterwards

	// Of gin's own response, before the handlers. With net/http they are not known.
	ginBegun bool
	ginSize  int
	ginError *gin.Error // the last one that middlewares have added, or nil
}

func newResponse(ctx context.Context, rs *requestState, status int) *response {
	outer := rs.w.Header()
	return &response{rs: rs, ctx: ctx, header: outer.Clone(), before: outer.Clone(), status: status, contentLength: -1}
}

// noteGin notes whether gin had begun a response before the handlers, its size, and the number of errors.
func (w *response) noteGin() {
	if outer, ok := w.rs.w.(gin.ResponseWriter); ok {
		w.ginBegun = outer.Written()
		w.ginSize = outer.Size()
	}
	if w.rs.gin != nil {
		w.ginError = w.rs.gin.Errors.Last()
	}
}

// sentInGin reports whether something has reached gin's response past w, since the handlers began. In a stream, that
// cannot be told.
func (w *response) sentInGin() bool {
	outer, isGin := w.rs.w.(gin.ResponseWriter)
	if !isGin || w.state == stateStreaming {
		return false
	}
	return outer.Size() != w.ginSize
}

// transition changes the state, and performs the action of the new state.
func (w *response) transition(t trigger) {
	from := w.state
	w.state = from.next(t)
	if w.state == from {
		return
	}

	switch w.state {
	case stateBuffered:
		w.freezeHeader()
	case stateStreaming:
		w.rs.hold.stream()
		w.sendBuffered(from)
	case stateSent:
		w.isSilent = from == stateOpen && !w.hasStatus
		w.rs.hold.release()
		// A stream has been sent already, except its trailers.
		if from != stateStreaming {
			w.sendBuffered(from)
		}
		w.addTrailers()
	case stateBroken:
		w.rs.hold.abort()
		w.breakConnection(from)
	case stateRefused:
		w.rs.hold.doom()
		w.resetHeader()
		w.discard()
	case stateDropped:
		w.rs.hold.release()
		w.discard()
	default:
		w.discard()
	}
}

// freezeHeader copies the header. Later changes are not part of the response, except trailers. It panics with an
// invalid status, as net/http does, but before the response is recorded.
func (w *response) freezeHeader() {
	if w.status < 100 || w.status > 999 {
		w.state = stateOpen
		panic(fmt.Sprintf("httplock: invalid status code %d", w.status))
	}

	w.frozen = w.header.Clone()
	w.canStream = w.canStream && isStreamable(w.status)

	length := cmp.Or(headerValue(w.frozen, "Content-Length"), "-1") // "" would cost an error
	n, err := strconv.ParseInt(length, 10, 64)
	if err == nil && bodyAllowed(w.status) {
		w.contentLength = n
	}
}

// bodyAllowed reports whether the client expects a body.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// isStreamable reports whether a client waits for the end of a response with the status. A client follows a redirect as
// soon as it has the header.
func isStreamable(status int) bool {
	return bodyAllowed(status) && status != http.StatusResetContent && status/100 != 3
}

// sendBuffered sends the header and the buffered part of the body. from is the state that the response had before.
func (w *response) sendBuffered(from state) {
	if w.rs.isOver() {
		w.discard()
		w.rs.abandon()
		return
	}

	h := w.rs.w.Header()
	w.passHeader(h)
	deleteHeader(h, "Transfer-Encoding") // with "identity" the end of the connection would end the body
	if w.state == stateStreaming {
		deleteHeader(h, "Content-Length") // with it the client might have the whole body before the lease is released
	}

	// If a handler of net/http has not begun a response, a middleware further out may respond.
	begun := from != stateOpen
	if begun || w.rs.gin != nil {
		w.rs.w.WriteHeader(w.status)
	}
	if begun {
		// An empty body is written, too, so that gin counts it as written. The client may be gone.
		_, _ = w.rs.w.Write(w.body)
	}
	w.discard()
}

// passHeader makes the changes in h, the client's header, that the handler has made in its copy. A middleware further out
// may have changed h, too: its changes stay, except to a header that the handler has changed.
func (w *response) passHeader(h http.Header) {
	for name, values := range w.frozen {
		was, existed := w.before[name]
		isSame := existed && slices.Equal(values, was)
		if !isSame {
			h[name] = slices.Concat(values, w.addedFurtherOut(h, name))
		}
	}

	for name := range w.before {
		if _, kept := w.frozen[name]; kept {
			continue
		}
		if rest := w.addedFurtherOut(h, name); len(rest) > 0 {
			h[name] = rest
		} else {
			delete(h, name)
		}
	}
}

// addedFurtherOut returns the values that a middleware further out has added to a header in h since the handlers began. It
// returns none of headers to which not every middleware adds.
func (w *response) addedFurtherOut(h http.Header, name string) []string {
	if name != "Set-Cookie" && name != "Vary" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(h[name]), func(v string) bool { return slices.Contains(w.before[name], v) })
}

// resetHeader makes the client's header the one before the handlers again. A session that a handler has saved must not
// reach the client with the refusal.
func (w *response) resetHeader() {
	if w.rs.isOver() {
		return
	}
	h := w.rs.w.Header()
	clear(h)
	maps.Copy(h, w.before)
}

// addTrailers passes on the last values of the trailers. Other headers that the handler has set since the response began
// are not a part of it. A middleware that sends the header at the end, as http.TimeoutHandler does, must not get them.
func (w *response) addTrailers() {
	if w.rs.isOver() {
		return
	}

	declared := strings.Split(strings.Join(w.frozen["Trailer"], ","), ",")
	for name, values := range w.header {
		isDeclared := slices.ContainsFunc(declared, func(trailer string) bool {
			return strings.EqualFold(strings.TrimSpace(trailer), name)
		})
		isTrailer := isDeclared || strings.HasPrefix(name, http.TrailerPrefix)
		isChanged := !slices.Equal(values, w.before[name])
		if isTrailer && isChanged {
			w.rs.w.Header()[name] = values
		}
	}
}

// breakConnection drops the response, and breaks its connection. The caller must panic afterwards: otherwise all
// middleware further out would take the response for complete. from is the state that the response had before.
func (w *response) breakConnection(from state) {
	w.discard()
	if from != stateStreaming && w.rs.hold.arrival != nil {
		return // Arrived breaks the connection
	}
	if err := w.connection.cut(); err != nil {
		w.rs.report(EventMisconfigured,
			fmt.Errorf("the response must be cut off, and the connection could not be broken: %w", err))
	}
}

// discard drops the buffered part of the body.
func (w *response) discard() {
	w.rs.m.admission.release(memoryUse, len(w.body))
	w.body = nil
}

var errHandlerReturned = errors.New("httplock: the handler has returned")

// tooLarge returns the error of a response that is larger than maxBuffered, and must not be streamed.
func (w *response) tooLarge() error {
	return fmt.Errorf("httplock: the answer is larger than the %d MiB that can be held back", w.rs.m.maxBuffered>>20)
}

func (w *response) Header() http.Header { return w.header }

func (w *response) WriteHeader(status int) {
	w.noteLate()

	// Informational responses are not sent, because the response that they announce may not be sent either.
	if isInformational(status) || w.state != stateOpen {
		return
	}

	// In gin, WriteHeader ignores a status that is not positive, and does not begin the response.
	isGin := w.rs.gin != nil
	if isGin && status <= 0 {
		return
	}
	w.status = status
	w.hasStatus = true
	if !isGin {
		w.transition(onBegin)
	}
}

// noteLate reports a response that is written after the handlers have returned without one.
func (w *response) noteLate() {
	if w.isSilent {
		w.isSilent = false
		w.rs.report(EventMisconfigured, errLate)
	}
}

var errLate = misplaced(
	"Put the code that responds for the handlers, such as an error renderer, inside the middleware.",
	"a response was written after the handlers had returned without one, which counts as an empty 200",
)

// gaveUp reports whether the handler has returned without a response, and not because the response is empty: its context
// or that of the request has ended, or in gin it has added an error, to which a middleware further out may respond.
func (w *response) gaveUp() bool {
	hasError := w.rs.gin != nil && w.rs.gin.Errors.Last() != w.ginError
	if hasError && w.written == 0 && bodyAllowed(w.status) {
		return true
	}

	isTooLate := w.ctx.Err() != nil || w.rs.r.Context().Err() != nil
	return isTooLate && !w.hasStatus && !w.hasBody
}

func (w *response) Write(b []byte) (int, error) {
	w.noteLate()
	w.hasBody = true
	w.transition(onBegin)
	if err := w.lostError(); err != nil {
		return 0, err
	}

	n := int64(len(b))
	switch {
	case n > 0 && !bodyAllowed(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.contentLength >= 0 && w.written+n > w.contentLength:
		return 0, http.ErrContentLength
	}

	if w.state == stateBuffered {
		w.checkLimits(w.written + n)
	}
	w.written += n

	switch w.state {
	case stateBuffered:
		w.body = append(w.body, b...)
		w.rs.m.admission.reserve(memoryUse, len(b), math.MaxInt) // no limit: the handler may have had its effect
		return len(b), nil
	case stateStreaming:
		if w.rs.isOver() {
			return 0, errHandlerReturned
		}
		return w.rs.w.Write(b)
	case stateOversized:
		return 0, w.tooLarge()
	}
	return 0, errHandlerReturned
}

// errLost is the error of handlers that write after a loss. It does not have the key: a middleware may send the error of a
// write to the client, as gin's error handlers do.
var errLost = fmt.Errorf("httplock: nothing more is sent: %w", core.ErrLost)

// lostError returns errLost if a lease under which the handlers run is lost.
func (w *response) lostError() error {
	isLost := w.isHandlers && w.rs.lostError() != nil
	if !isLost {
		return nil
	}
	return errLost
}

// checkLimits ends the buffering of a response that is about to become too large for it.
func (w *response) checkLimits(size int64) {
	switch {
	case w.canStream && size > w.rs.m.streamThreshold:
		w.transition(onStreamLimit)
	case size > w.rs.m.maxBuffered:
		w.transition(onBufferLimit)
	}
}

func (w *response) Flush() { _ = w.FlushError() } // http.Flusher has no error

func (w *response) FlushError() error {
	w.transition(onBegin)

	// The nil value keeps net/http from guessing the type from the bytes that it sends with the header.
	isHeaderAlone := w.state == stateBuffered && w.written == 0
	if isHeaderAlone && !hasHeader(w.frozen, "Content-Type") {
		w.frozen["Content-Type"] = nil
	}

	err := w.lostError()
	if err != nil || !w.canStream {
		return err
	}
	w.transition(onFlush)
	if w.state != stateStreaming || w.rs.isOver() { // the handler has returned
		return nil
	}
	return http.NewResponseController(w.rs.w).Flush()
}

// SetWriteDeadline is for http.ResponseController. There is no Unwrap method, because it would bypass the response.
func (w *response) SetWriteDeadline(t time.Time) error {
	if w.rs.isOver() {
		return errHandlerReturned
	}
	return http.NewResponseController(w.rs.w).SetWriteDeadline(t)
}

// The other methods are for gin.
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
