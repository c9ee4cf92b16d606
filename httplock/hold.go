package httplock

import "net/http"

// A hold guards the response of a request while the handlers of its Lock run: whatever they may reach, no success is
// sent. Without Arrived it does nothing.
type hold struct {
	arrival  *arrival // nil without Arrived
	direct   bool     // the ResponseWriter of Lock leads to that of Arrived
	released bool

	// The arrival's, when the hold began.
	status   int
	bypasses int
}

func newHold(a *arrival, direct bool) hold {
	if a == nil {
		return hold{released: true}
	}
	a.mu.Lock()
	defer a.mu.Unlock()

	a.holds++
	return hold{arrival: a, direct: direct, status: a.status, bypasses: a.bypasses}
}

// bypassed reports whether something was sent since the hold began, or would have been sent without it. An error does
// not count if a middleware that has stopped waiting may have sent it, as http.TimeoutHandler does: the request's
// context has then ended, and the ResponseWriter of Lock leads to the middleware's buffer.
func (h *hold) bypassed(r *http.Request) bool {
	if h.arrival == nil {
		return false
	}
	h.arrival.mu.Lock()
	defer h.arrival.mu.Unlock()

	errorSent := !h.released && h.arrival.status != h.status
	gaveUp := !h.direct && r.Context().Err() != nil
	return h.arrival.bypasses != h.bypasses || errorSent && !gaveUp
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
	h.arrival.mu.Lock()
	defer h.arrival.mu.Unlock()

	if !h.released {
		h.arrival.holds--
	}
	h.released = true
	change(h.arrival)
}
