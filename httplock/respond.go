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
	return rs.arrival != nil && (rs.arrival.hasEnded() || rs.isForeign())
}

// hasGin reports whether gin's Context, in which Lock has set w, still belongs to this request. If a middleware has not
// waited for its handlers, gin may have reset it for another request.
func (rs *requestState) hasGin(w http.ResponseWriter) bool {
	if own, ok := rs.gin.Writer.(*response); ok && own == w {
		return true
	}
	return !rs.isOver()
}

// isForeign reports whether neither the context nor the header of the request belongs to the arrival of its writer, which
// then is most likely that of another request.
func (rs *requestState) isForeign() bool {
	a := rs.arrival
	return a != nil && a != arrivalIn(rs.r.Context()) && !a.isOf(rs.r)
}

var errForeign = misplaced(
	"Give the request a context that is made from its own, or leave its header as it is. "+
		"A middleware that stops waiting for its handlers must give them a ResponseWriter of its own.",
	"the ResponseWriter belongs to another request, as far as can be told",
)

// reportOver reports a request that is over before its handlers run.
func (rs *requestState) reportOver() {
	if rs.isForeign() {
		rs.report(EventMisconfigured, errForeign)
		return
	}
	rs.report(EventGone, errHandlerReturned)
}

// abandon is called instead of a response, if the request is over. A writer that does not lead to Arrived may be a
// recorder of the application's own, for a part of the request. It gets a status, because nothing would mean 200. Through
// a writer that leads to Arrived, abandon sends nothing. If it may be the writer of this request, Arrived responds in the
// end, unless something else has.
func (rs *requestState) abandon() {
	guarded := arrivalBehind(rs.w)
	if guarded == nil {
		rs.w.WriteHeader(http.StatusServiceUnavailable)
		return
	}

	if rs.isForeign() {
		guarded.abandon()
	}
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
		defer func() {
			if rs.hasGin(w) {
				c.Writer = outer
			}
		}()
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
