package httplock

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Lock is the middleware that lets one request at a time through per key: a gin.HandlerFunc for a route or a group. It lets
// the handlers after it run while this request has its key, and answers in their place where it cannot have it: the
// refusals are listed from [EventBusy] on.
//
// c.Request.Context() ends when the lease is lost, and when the request's own context ends; core.FromContext
// finds the lease in it.
func (m *Middleware) Lock(c *gin.Context) { m.lock(ginHost{c}, c.Writer, c.Request) }

// Once is the middleware for requests with the header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07): a
// gin.HandlerFunc for a route or a group. Without the header, a request goes on as if Once were not there, unless
// [WithIdempotencyKeyRequired] is given; so does one whose method is not to be locked, such as GET. To run it alone as well, put Lock after Once:
//
//	r.POST("/orders/:id/payments", m.Once, m.Lock, pay)
//
// The first request with a key runs, and its answer is recorded before it is sent. A repetition is answered from the
// record, with the header Idempotent-Replayed: true; while the first is under way, with 409; if it is a different request,
// with 422. Its key belongs to service, tenant, method and route; what makes it the same request are path, query, body, and
// who sends it: see [WithTenant].
//
// c.Request.Context() does not end when the client goes away, because a repetition will ask for the outcome. It ends at the
// request's deadline, and when the lease on the key is lost. [FromContext] finds an identity in it, to be stored beside the
// handler's effect.
//
// Nothing is recorded, and a repetition runs again, where the answer asks for that: 429, 503, and any other of 400 and more
// with a Retry-After; see [WithRecord] and [Discard]. Nor is anything recorded of a request that was refused, or whose
// handler panicked or lost its lease: its effects are open. The same goes for one whose process died, once its lease is
// over (core.TTL).
//
// The record has the status, the headers of [WithReplayHeaders] and the body, up to [WithRecordLimit]. Of a larger answer,
// and of one that broke off before its Content-Length, it has no body: repetitions are then told so with 410,
// EventIdempotencyOmitted, the headers that were recorded, and the first answer's status in Idempotent-Status. What a
// middleware further in has compressed is repeated compressed, whatever the repetition accepts.
func (m *Middleware) Once(c *gin.Context) { m.once(ginHost{c}, c.Writer, c.Request) }

// A ginHost is the entrance for gin.
type ginHost struct{ *gin.Context }

func (h ginHost) template() string                 { return h.FullPath() }
func (h ginHost) param(name string) (string, bool) { return h.Params.Get(name) }

// unmatched: gin may have left parameters of a route that nearly fitted.
func (h ginHost) unmatched() (skip bool) { return true }

func (h ginHost) proceed() { h.Next() }

func (h ginHost) run(w *response, r *http.Request) {
	writer, request := h.Writer, h.Request
	defer func() { // also for what recovers from a panic further out
		adopt(request, h.Request)
		h.Writer, h.Request = writer, request
	}()
	h.Writer, h.Request = ginWriter{w, writer}, r
	h.Next()
}

func (h ginHost) answer(status int, body []byte) {
	h.Abort()
	h.Status(status)
	h.Writer.WriteHeaderNow()
	if len(body) > 0 {
		_, _ = h.Writer.Write(body) // the client may be gone
	}
}

func (h ginHost) refuse(x *exchange, r Refusal) {
	h.Abort()
	if r.Kind == EventMisconfigured {
		_ = h.Error(r.Err) // for the log: nothing but a look at the routes helps
	}
	h.Status(r.Status) // for a reply of the user's that leaves it as it is
	if x.m.reply != nil {
		x.m.reply(h.Context, r)
		return
	}
	x.m.httpReply(h.Writer, h.Request, r)
}

// A ginWriter is a response, with what gin wants beside that.
type ginWriter struct {
	*response
	outer gin.ResponseWriter
}

func (w ginWriter) Pusher() http.Pusher      { return w.outer.Pusher() }
func (w ginWriter) CloseNotify() <-chan bool { return w.outer.CloseNotify() }
