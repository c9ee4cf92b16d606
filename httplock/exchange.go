package httplock

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// An exchange is one request on its way through a Middleware.
type exchange struct {
	m     *Middleware
	gin   *gin.Context // nil: it came by net/http
	w     http.ResponseWriter
	r     *http.Request
	route string // its template
	found int    // the status that was set further out
	came  time.Time

	body []byte

	key               string // of the resource; empty: nothing makes one
	once              bool   // it runs once, under an Idempotency-Key
	onceKey, identity string
	fingerprint       [sha256.Size]byte

	leases []*core.Lease   // not settled yet: that of the Idempotency-Key, that of the resource
	room   [2]*core.Lease  // for them
	inner  context.Context // of the last of them, or of the request
}

// show calls a function of the user's with the request.
func (x *exchange) show(f func(*http.Request)) {
	r := x.with(context.WithValue(x.r.Context(), contextKey("gin"), x.gin))
	f(r)
	x.r.Form, x.r.PostForm, x.r.MultipartForm = r.Form, r.PostForm, r.MultipartForm // net/http removes its files at the end
}

// A contextKey leads to what the context of a request carries.
type contextKey string

// GinContext returns gin's context, for a function that [ByFunc], [ByKey], [WithTenant] or [WithReply] was given. It
// returns false if the request did not come by gin.
func GinContext(r *http.Request) (*gin.Context, bool) {
	c, _ := r.Context().Value(contextKey("gin")).(*gin.Context)
	return c, c != nil
}

// with returns the request with a context, and with its body at the beginning.
func (x *exchange) with(ctx context.Context) *http.Request {
	if x.body != nil {
		x.r.Body = io.NopCloser(bytes.NewReader(x.body))
	}
	return x.r.WithContext(ctx)
}

// held returns the leases that the request has: of x, of Locks further out, and of package core around each.
func (x *exchange) held() (all []*core.Lease) {
	for ; x != nil; x, _ = x.r.Context().Value(contextKey("exchange")).(*exchange) {
		all = append(all, x.leases...)
		if lease, ok := core.FromContext(x.r.Context()); ok {
			all = append(all, lease)
		}
	}
	return all
}

// loss returns why one of the leases ended before the handlers have returned.
func loss(leases []*core.Lease) (err error) {
	for _, lease := range leases {
		err = cmp.Or(err, lease.Lost())
	}
	return err
}

// settling is how long an answer waits for the nodes to confirm that its key is free. A client that goes on with another
// request then finds it free, wherever that request goes; a node that is slow delays nobody.
const settling = 100 * time.Millisecond

// release gives leases back, and waits for a while for that to be confirmed, except of those that are lost. The error is
// that of a loss before.
func (x *exchange) release(leases []*core.Lease) (loss error) {
	if len(leases) == 0 {
		return nil
	}
	released, waiting := make(chan error, len(leases)), len(leases)
	for _, lease := range leases {
		if lost := lease.Lost(); lost != nil {
			loss, waiting = lost, waiting-1
		}
		x.m.admission.inside.Go(func() { released <- lease.Release(lease.Context()) })
	}
	for enough := time.After(settling); waiting > 0; waiting-- {
		select {
		case err := <-released:
			if errors.Is(err, core.ErrLost) {
				loss = err
			}
		case <-enough:
			return loss
		}
	}
	return loss
}

// report counts an event, also after the request, and logs one that nothing but a look at the route helps against.
func (x *exchange) report(kind core.EventKind, err error) {
	x.m.locker.Event(x.r.Context(), core.Event{Source: "httplock", Name: x.route, Kind: kind})
	if refusals[kind].Status == http.StatusInternalServerError {
		x.m.locker.Logger().Error("httplock: "+string(kind), "route", x.route, "err", err)
	}
}

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
}

func newResponse(ctx context.Context, x *exchange, status int) *response {
	return &response{x: x, ctx: ctx, header: maps.Clone(x.w.Header()), status: status, announced: -1}
}

// breakable reports whether a connection can be broken from w: not if there is something between us and net/http that
// cannot be looked through, as the writers of gzip middlewares and of http.TimeoutHandler.
func breakable(w http.ResponseWriter) bool {
	if outer, ok := w.(*response); ok { // of a Lock further out, which may keep it back
		return outer.streams
	}
	if _, ok := w.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		return true
	}
	outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
	return ok && breakable(outer.Unwrap())
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
		// Panic afterwards: the panic alone would not do where gin.Recovery swallows it and net/http then ends the answer as
		// if it were whole; the deadline alone would have everything further out believe that all went well.
		w.forget()
		if err := w.SetWriteDeadline(time.Unix(1, 0)); errors.Is(err, http.ErrNotSupported) {
			w.x.report(EventMisconfigured, fmt.Errorf("the response must be cut off, and the connection could not be closed: %w", err))
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
	n, err := int64(len(b)), loss(w.x.leases)
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
	if err := loss(w.x.leases); err != nil || !w.streams {
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
