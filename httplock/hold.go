package httplock

import (
	"context"
	"slices"
)

// A hold guards the response of a request while the handlers of its Lock run: whatever they may reach, no success is
// sent. While Lock streams, a stream passes. Without Arrived, a hold does nothing.
type hold struct {
	arrival *arrival        // nil without Arrived
	ctx     context.Context // of the request
	direct  bool            // the ResponseWriter of Lock leads to that of Arrived

	canStream bool // the client would wait for the end of a stream

	// Guarded by the mutex of the arrival.
	streams   bool // Lock streams
	bypassed  bool // something was sent past Lock, or would have been sent without the hold
	errorPast bool // something sent an error, possibly a middleware
}

// begin begins the hold. a is nil without Arrived.
func (h *hold) begin(ctx context.Context, a *arrival, direct bool) {
	h.arrival = a
	h.ctx = ctx
	h.direct = direct
	if a == nil {
		h.canStream = true
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()

	h.canStream = a.awaitsEnd && !a.hasLength && (a.status == 0 || isStreamable(a.status))
	a.holds = append(a.holds, h)
}

// errorSent records that something other than Lock has begun the response with an error. A middleware may have stopped
// waiting for the handlers, as http.TimeoutHandler does: the ResponseWriter of Lock then leads to the middleware's
// buffer, and usually the request's context has ended. The mutex of the arrival must be held.
func (h *hold) errorSent() {
	switch {
	case h.streams:
	case h.direct:
		h.bypassed = true
	case h.ctx.Err() == nil:
		h.errorPast = true
	}
}

// isBypassed reports whether something was sent past Lock since the hold began. An error that a middleware may have sent
// does not count if the handlers have written to their own ResponseWriter.
func (h *hold) isBypassed(handlersWrote bool) bool {
	if h.arrival == nil {
		return false
	}
	h.arrival.mu.Lock()
	defer h.arrival.mu.Unlock()

	return h.bypassed || h.errorPast && !handlersWrote
}

// stream lets a stream pass, until the hold ends.
func (h *hold) stream() {
	if h.arrival == nil {
		return
	}
	h.arrival.mu.Lock()
	defer h.arrival.mu.Unlock()

	h.streams = true
}

// release ends the hold.
func (h *hold) release() { h.end(func(*arrival) {}) }

// doom ends the hold. No success is sent from then on.
func (h *hold) doom() { h.end(func(a *arrival) { a.isDoomed = true }) }

// abort ends the hold. Nothing is sent from then on, and Arrived breaks the connection when its handler is over.
func (h *hold) abort() { h.end(func(a *arrival) { a.isAborted = true }) }

func (h *hold) end(change func(*arrival)) {
	if h.arrival == nil {
		return
	}
	a := h.arrival
	a.mu.Lock()
	defer a.mu.Unlock()

	a.holds = slices.DeleteFunc(a.holds, func(other *hold) bool { return other == h })
	change(a)
}
