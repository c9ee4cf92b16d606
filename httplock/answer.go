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
func (x *exchange) refuse(err error) {
	x.leases, _ = nil, x.release(x.leases)
	why, ok := errors.AsType[*rejection](err)
	if !ok {
		why = denied(err, EventBusy)
	}
	x.report(why.kind, why.err)

	r := refusals[why.kind]
	r.Kind, r.Err, r.Detail, r.RetryAfter = why.kind, why.err, cmp.Or(why.detail, r.Detail), cmp.Or(why.again, r.RetryAfter)
	if op, ok := errors.AsType[*core.OpError](why.err); ok && op.RetryAfter > 0 {
		r.RetryAfter = op.RetryAfter
	}
	x.answer(r.Status, func(w http.ResponseWriter, request *http.Request) {
		if r.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(seconds(r.RetryAfter)))
		}
		x.m.reply(w, request, r)
	})
}

// seconds returns a time in whole seconds. 0 would say at once.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// answer sends an answer that is not the handler's.
func (x *exchange) answer(status int, write func(http.ResponseWriter, *http.Request)) {
	w := newResponse(x.r.Context(), x, status)
	defer w.forget() // after a panic
	if c := x.gin; c != nil {
		c.Abort()
		defer func(w gin.ResponseWriter) { c.Writer = w }(c.Writer)
		c.Writer = w
	}
	x.show(func(r *http.Request) { write(w, r) })
	w.on(begun)
	w.on(returned)
}
