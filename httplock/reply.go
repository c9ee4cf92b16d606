package httplock

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// refuse answers in place of the handler, which is over or does not run.
func (x *exchange) refuse(err error) {
	x.leases, _ = nil, x.release(x.leases)
	why, ok := errors.AsType[*rejection](err)
	if !ok {
		why = denied(err, EventBusy)
	}
	x.report(why.kind, why.err)
	r := refusals[why.kind]
	r.Kind, r.Err, r.Detail = why.kind, why.err, cmp.Or(why.detail, r.Detail)
	if op, ok := errors.AsType[*core.OpError](why.err); ok && op.RetryAfter > 0 {
		r.RetryAfter = op.RetryAfter
	}
	h := http.Header{}
	if r.RetryAfter > 0 { // in whole seconds, and 0 would say at once
		h.Set("Retry-After", strconv.Itoa(int((r.RetryAfter+time.Second-1)/time.Second)))
	}
	x.answer(r.Status, h, func(w http.ResponseWriter, request *http.Request) { x.m.reply(w, request, r) })
}

// answer sends an answer that is not the handler's.
func (x *exchange) answer(status int, h http.Header, write func(http.ResponseWriter, *http.Request)) {
	r := x.request()
	w := newResponse(r.Context(), x, status)
	maps.Copy(w.header, h)
	if c := x.gin; c != nil {
		c.Abort()
		defer func(w gin.ResponseWriter) { c.Writer = w }(c.Writer)
		c.Writer = w
	}
	write(w, r)
	w.on(begun)
	w.on(returned)
}
