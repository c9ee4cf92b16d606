package httplock

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"
)

// Arrived returns a handler that tells each Lock inside h when the request arrived, and that guards its response. Put
// it around the whole server:
//
//	server := &http.Server{Handler: httplock.Arrived(router), WriteTimeout: 30 * time.Second}
//
// # Responses
//
// A middleware may keep the ResponseWriter that it gets, for instance in the request's context. If a handler under Lock
// writes to it, Lock does not see the bytes, and neither holds them back nor withdraws them after a loss. Arrived sees
// all bytes. It lets no success pass that a Lock has not confirmed. A success is any status below 400, except the
// informational ones.
//
//   - While the handlers of a Lock run, only Lock itself sends a success, which is then a stream. If anything else
//     sends one, it gets an error, and the client gets nothing of it. The connection is broken when h has returned, and
//     the request is reported as [EventMisconfigured]. Nothing is recorded, or the status alone if the handler has
//     called [Record].
//   - A stream stays a stream, whatever middlewares make of it: it ends only when Lock has confirmed it. It is sent
//     without a Content-Length or Transfer-Encoding of a middleware. If a middleware gives it a status such as 204 or
//     303, for which no client waits for the end, or takes the connection over, the first rule applies. Whether the
//     client waits depends on the protocol and the method that the server has read.
//   - After Lock has refused a request whose handlers ran, as after a loss, nobody sends a success. This also stops a
//     middleware that compresses or buffers, and still has a success that it was given before. The connection is broken
//     when h has returned.
//
// The last rule applies to all middleware that turns a refusal into a success, such as an envelope that always has
// status 200. Its client sees a broken connection after a loss. Other refusals are not affected, because no handler has
// run.
//
// An error that something other than Lock sends while the handlers run passes, and breaks the connection in the end, as
// a success does. The exception is a middleware that stops waiting for the handlers, as http.TimeoutHandler does: its
// ResponseWriter has no Unwrap method, and it has ended the context of the request, or the handler writes to the
// ResponseWriter that it is given. Its response is whole, and that of the handler is recorded, if the request has an
// Idempotency-Key.
//
// What was sent before the handlers of the Lock began cannot be withdrawn. If a part of the response was sent, and a
// lease is lost, the connection is broken. If all of it was sent, the client has a success. If a Content-Length was
// sent, the handlers cannot stream. In HTTP/1.0, and with Transfer-Encoding: identity, the end of the connection is the
// end of the response, so Arrived resets it. A Unix socket cannot be reset, nor can a connection that a listener wraps
// without a method SetLinger: their clients take the part that was sent for a whole response.
//
// A request that a handler passes to the router itself, with the context of its own request, counts as a part of that
// request. Its Lock guards the whole response. If the two are independent, give it a context without the values of the
// request's own: context.Background, and not context.WithoutCancel.
//
// Once Arrived has returned, Lock runs no handlers and sends nothing, except that a Lock may be about to do so at that
// moment. A ResponseWriter that does not lead to Arrived gets the status 503. Lock knows the request by its header and
// its context. If a middleware has replaced both, the ResponseWriter may be that of another request: Lock runs no
// handlers, the request is reported as [EventMisconfigured], and Arrived responds with 503 unless something else has
// responded.
//
// # Time
//
// The server's WriteTimeout begins when a request arrives. Lock lets a request wait for a part of the time that is left
// of it. Without Arrived, Lock assumes that all of the WriteTimeout is left when the request reaches it. If a
// middleware further out has used up some of the time, such as an authentication that asks another service, the
// response may be too late, and the connection then breaks.
//
// # Where to put it
//
// Nothing should be further out: Arrived does not see what is written to a ResponseWriter outside of it. The exception
// is golang.org/x/net/http2/h2c: put Arrived inside its handler. If several Arrived are around a request, the outermost
// one counts. Lock finds Arrived by the context of the request, or by the Unwrap methods of ResponseWriters. If a
// middleware in between replaces the context, and its ResponseWriter has no Unwrap method, Lock does not find Arrived,
// or finds that of the request whose context it is.
//
// The ResponseWriter that h gets has the methods of the server's own: over HTTP/1 it is an http.Hijacker and an
// io.ReaderFrom, and over HTTP/2 an http.Pusher. It has no Unwrap method, which would lead past it. Files are sent
// through memory. A connection that a middleware takes over is not guarded any more. net/http does not recognize the
// ResponseWriter in [http.MaxBytesReader]: after a body that is too large, the connection may stay open. h does not see
// request trailers that the client has not declared.
func Arrived(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer := arrivalOf(w, r)
		isGuarded := outer != nil && !outer.hasEnded()
		isOver := outer != nil && outer.isOf(r) && !isGuarded
		hasArrived := isGuarded || isOver
		if hasArrived {
			h.ServeHTTP(w, r)
			return
		}
		serveArrival(h, w, r)
	})
}

// serveArrival serves a request with h, and guards its response.
func serveArrival(h http.Handler, w http.ResponseWriter, r *http.Request) {
	guarded := newArrivalWriter(w)
	a := guarded.arrived()
	a.header = r.Header
	a.isOld = !r.ProtoAtLeast(1, 1)
	a.awaitsEnd = awaitsEnd(r)
	inner := r.WithContext(context.WithValue(r.Context(), arrivalKey, a))

	returned := false
	defer func() {
		keepFiles(r, inner)

		broken := a.end()
		mustPanic := broken && returned // a panic of the handlers goes on
		if mustPanic {
			panic(http.ErrAbortHandler)
		}
	}()
	h.ServeHTTP(guarded, inner)
	returned = true
}

// An arrival is a request that came through Arrived, and the state of its response. All goroutines of the request use
// it.
type arrival struct {
	at    time.Time           // when it arrived
	outer http.ResponseWriter // usually the server's

	// Of the request that the server has read. A middleware may have changed it for the handlers.
	header    http.Header
	isOld     bool // it is older than HTTP/1.1
	awaitsEnd bool // its client waits for the end of a response without a length

	mu         sync.Mutex
	status     int     // that was sent; 0 if none was
	hasLength  bool    // it was sent with a Content-Length
	endsLast   bool    // it was sent so that the end of the connection ends it
	isStream   bool    // Lock began it
	holds      []*hold // of the Locks whose handlers run
	isDoomed   bool    // no success is sent any more
	isAborted  bool    // nothing is sent any more, and the connection is broken in the end
	isHijacked bool    // a middleware has taken the connection over
	isMissing  bool    // a Lock has sent nothing, and may have been the one to respond
	isBroken   bool
	isOver     bool // Arrived has returned. The connection may serve another request.
}

// arrivalOf returns the arrival of a request with the writer w, or nil. It may be over.
//
// A writer may lead to another request: a middleware that compresses may have a pool of writers, which serve one request
// after the other. A context may be that of another request, too: a middleware has replaced it, or the request came over
// a hijacked connection, or to a server inside a request. The context counts if the header agrees with it, and otherwise
// the writer does.
func arrivalOf(w http.ResponseWriter, r *http.Request) *arrival {
	own := arrivalIn(r.Context())
	isOwn := own != nil && own.isOf(r)

	a := own
	if !isOwn {
		a = cmp.Or(arrivalBehind(w), own)
	}
	if a == nil || a.isTakenOver() {
		return nil
	}

	server := serverOf(w)
	isOfAnotherServer := !isOwn && server != nil && server != serverOf(a.outer)
	if isOfAnotherServer {
		return nil
	}
	return a
}

// arrivalBehind returns the outermost arrival that w leads to, or nil.
func arrivalBehind(w http.ResponseWriter) (a *arrival) {
	for w := range outward(w) {
		if guarded, ok := w.(arrivalWriter); ok {
			a = guarded.arrived()
		}
	}
	return a
}

// arrivalIn returns the arrival of the request that ctx comes from, or nil.
func arrivalIn(ctx context.Context) *arrival {
	a, _ := ctx.Value(arrivalKey).(*arrival)
	return a
}

// isOf reports whether r is the request that arrived, or a copy that middlewares have made. They share its header, unless
// a middleware has cloned it.
func (a *arrival) isOf(r *http.Request) bool {
	return r.Header != nil && reflect.ValueOf(a.header).Pointer() == reflect.ValueOf(r.Header).Pointer()
}

// isLive reports whether the response is still guarded.
func (a *arrival) isLive() bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	return !a.isOver && !a.isHijacked
}

// isTakenOver reports whether a middleware has taken the connection over, and Arrived has not returned yet.
func (a *arrival) isTakenOver() bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.isHijacked && !a.isOver
}

// hasEnded reports whether Arrived has returned.
func (a *arrival) hasEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.isOver
}

var (
	errBypassed = errors.New("httplock: written past Lock while its handlers run, or a stream of Lock made whole")
	errDoomed   = errors.New("httplock: Lock has refused the request after its handlers ran, or broken its connection")
)

// send begins a response with the status, if none has begun. Otherwise it lets a part of the body pass. It returns an
// error if that must not be sent. begins reports whether the response has begun with the status.
func (a *arrival) send(status int) (begins bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	begun := a.status != 0
	if begun {
		status = a.status
	}

	switch {
	case a.isHijacked: // net/http returns an error
		return false, nil
	case a.isOver:
		return false, errHandlerReturned
	case status < 100, status > 999: // net/http panics, and the response has not begun
		return false, nil
	case isInformational(status):
		return false, nil
	case a.isAborted:
		return false, errDoomed
	case !isSuccess(status), a.isStream && !a.isDoomed:
	case a.isDoomed:
		return false, errDoomed
	case a.isHeldBack(), !begun && len(a.holds) > 0 && !isStreamable(status):
		a.bypass()
		return false, errBypassed
	}

	if begun {
		return false, nil
	}
	a.begin(status)
	return true, nil
}

// isHeldBack reports whether the handlers of a Lock run that does not stream. a.mu must be held.
func (a *arrival) isHeldBack() bool {
	return slices.ContainsFunc(a.holds, func(h *hold) bool { return !h.streams })
}

// begin begins a response with the status. a.mu must be held: if something else wrote first, net/http would send 200.
func (a *arrival) begin(status int) {
	a.status = status
	a.isStream = isSuccess(status) && len(a.holds) > 0
	h := a.outer.Header()

	// With a length, the client of a stream might have all of it while the handlers still run. Without chunks, it might
	// take the end of a connection that cannot be reset for the end of the body.
	if a.isStream {
		deleteHeader(h, "Content-Length")
		deleteHeader(h, "Transfer-Encoding")
	}
	a.hasLength = headerValue(h, "Content-Length") != ""
	a.endsLast = a.isOld || headerValue(h, "Transfer-Encoding") == "identity"

	if !isSuccess(status) {
		for _, h := range a.holds {
			h.errorSent()
		}
	}
	a.outer.WriteHeader(status)
}

// bypass records that a success was refused because of a hold. The response is not whole without it. a.mu must be held.
func (a *arrival) bypass() {
	for _, h := range a.holds {
		h.bypassed = true
	}
	a.isDoomed = true
}

// hijack records that the connection is about to be taken over. It returns an error if that must not be.
func (a *arrival) hijack() error {
	a.mu.Lock()
	defer a.mu.Unlock()

	switch {
	case a.isOver:
		return errHandlerReturned
	case a.isDoomed, a.isAborted:
		return errDoomed
	case len(a.holds) > 0:
		a.bypass()
		return errBypassed
	}
	a.isHijacked = true
	return nil
}

// hijackFailed records that the connection was not taken over.
func (a *arrival) hijackFailed() {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.isHijacked = false
}

// abandon records that a Lock has sent nothing although it may have been the one to respond.
func (a *arrival) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.isMissing = true
}

// cut breaks the connection, unless it is broken, or serves another request.
func (a *arrival) cut() error {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.isOver {
		return nil
	}
	return a.cutLocked()
}

// cutLocked breaks the connection, unless it is broken. a.mu must be held.
func (a *arrival) cutLocked() error {
	if a.isBroken {
		return nil
	}

	conn, ok := connectionOf(a.outer)
	if !ok {
		return errNoConnection
	}
	conn.resets = a.endsLast
	err := conn.cut()
	a.isBroken = err == nil
	return err
}

// end is called when the handler of Arrived is over. It breaks the connection if that is due, or if the server would
// end a success that no Lock has confirmed, and reports whether that was so. From then on nothing changes the
// connection.
func (a *arrival) end() (broken bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.isOver {
		return false
	}
	a.isOver = true

	isUnanswered := a.isMissing && a.status == 0 && !a.isHijacked
	if isUnanswered {
		a.begin(http.StatusServiceUnavailable) // the server would send 200
	}
	unconfirmed := (a.isDoomed || len(a.holds) > 0) && isSuccess(a.status)
	mustBreak := !a.isHijacked && (a.isAborted || unconfirmed)
	if !mustBreak {
		return false
	}

	err := a.cutLocked()
	if err != nil && a.status == 0 { // the server is not known, and would respond with 200
		a.outer.WriteHeader(http.StatusInternalServerError)
	}
	return true
}

// isInformational reports whether another response follows one with the status.
func isInformational(status int) bool {
	return status/100 == 1 && status != http.StatusSwitchingProtocols
}

// isSuccess reports whether a client takes a response with the status for a success. 0 stands for a response that has
// not begun, for which the server sends 200.
func isSuccess(status int) bool { return status < http.StatusBadRequest }
