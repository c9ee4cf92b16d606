package httplock

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// refuse answers in place of the handler, which is over or does not run.
func (rs *requestState) refuse(err error) {
	rs.leases, _ = nil, rs.releaseLeases(rs.leases)
	why, ok := errors.AsType[*rejection](err)
	if !ok {
		why = rejectionFor(err, EventBusy)
	}
	rs.report(why.kind, why.err)

	r := refusals[why.kind]
	r.Kind, r.Err, r.Detail, r.RetryAfter = why.kind, why.err, cmp.Or(why.detail, r.Detail), cmp.Or(why.retryAfter, r.RetryAfter)
	if op, ok := errors.AsType[*core.OpError](why.err); ok && op.RetryAfter > 0 {
		r.RetryAfter = op.RetryAfter
	}
	if !rs.writeRefusal(r, rs.m.reply) { // it panicked
		rs.writeRefusal(r, defaults.reply)
	}
}

// reply answers with a refusal, and reports whether f returned. If it did not, nothing is sent.
func (rs *requestState) writeRefusal(r Refusal, f func(http.ResponseWriter, *http.Request, Refusal)) (returned bool) {
	return rs.respond(r.Status, func(w http.ResponseWriter) bool {
		if r.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(seconds(r.RetryAfter)))
		}
		returned, _ := rs.callUser("WithReply", func(request *http.Request) { f(w, request, r) })
		return returned
	})
}

// seconds returns a time in whole seconds. 0 would say at once.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// answer sends an answer that is not the handler's, if write returns true, and reports whether it did.
func (rs *requestState) respond(status int, write func(http.ResponseWriter) bool) bool {
	w := newResponse(rs.r.Context(), rs, status)
	defer w.discard() // also if it is not sent
	if c := rs.gin; c != nil {
		c.Abort()
		defer func(w gin.ResponseWriter) { c.Writer = w }(c.Writer)
		c.Writer = w
	}
	if !write(w) {
		return false
	}
	w.transition(onBegin)
	w.transition(onReturn)
	return true
}
