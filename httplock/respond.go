package httplock

import (
	"errors"
	"net/http"
	"strconv"
	"time"
)

// refuse responds with a refusal instead of the handler, which is over or does not run.
func (rs *requestState) refuse(err error) {
	_ = rs.releaseLeases(rs.leases)
	rs.leases = nil

	reason, ok := errors.AsType[*rejection](err)
	if !ok {
		reason = rejectionFor(err, EventBusy)
	}
	rs.report(reason.kind, reason.err)

	r := reason.refusal()
	written := rs.writeRefusal(r, rs.m.reply)
	if !written { // WithReply's function panicked, or wrote too much
		rs.writeRefusal(r, defaults.reply)
	}
}

// writeRefusal responds with a refusal that f writes, and reports whether it was sent. If f panics, nothing is sent.
func (rs *requestState) writeRefusal(r Refusal, f func(http.ResponseWriter, *http.Request, Refusal)) bool {
	return rs.respond(r.Status, func(w http.ResponseWriter) bool {
		if r.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(seconds(r.RetryAfter)))
		}

		returned, _ := rs.callUser("WithReply", func(request *http.Request) { f(w, request, r) })
		return returned
	})
}

// isOver reports whether Arrived has returned, because a middleware has not waited for Lock or for its handlers.
func (rs *requestState) isOver() bool {
	return rs.arrival != nil && (rs.arrival.hasEnded() || rs.isReplaced())
}

// isReplaced reports whether the writer leads to another request, and the request itself is over. A middleware that
// compresses may have a pool of writers, which serve one request after the other.
func (rs *requestState) isReplaced() bool {
	own := arrivalIn(rs.r.Context())
	return own != nil && own != rs.arrival && own.hasEnded() && !rs.arrival.isOf(rs.r)
}

// abandon is called instead of a response, if the request is over. It sends nothing to another request. Any other writer
// gets a status, because nothing would mean 200: it may be a recorder of the application's own, for a part of the
// request.
func (rs *requestState) abandon() {
	guarded := arrivalBehind(rs.w)
	own := arrivalIn(rs.r.Context())
	isOthers := own != nil && own.isOf(rs.r) // own is over
	if guarded != nil && (isOthers || guarded.hasEnded()) {
		return
	}
	rs.w.WriteHeader(http.StatusServiceUnavailable)
}

// seconds returns d in whole seconds, rounded up: 0 would mean "at once".
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// respond sends the response that write writes, instead of the handler's. If write returns false, nothing is sent.
// respond reports whether the response was sent.
func (rs *requestState) respond(status int, write func(http.ResponseWriter) bool) bool {
	if rs.isOver() {
		rs.abandon()
		return true
	}

	w := newResponse(rs.r.Context(), rs, status)
	defer w.discard() // for a response that is not sent

	// In gin, no handler runs any more, and functions of the application find w in the context.
	if c := rs.gin; c != nil {
		c.Abort()
		outer := c.Writer
		defer func() { c.Writer = outer }()
		c.Writer = w
	}

	written := write(w)
	if !written {
		return false
	}
	w.transition(onBegin)
	w.transition(onReturn)
	return w.state == stateSent // it may be too large
}
