package httplock

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// end settles the leases and sends the answer, once the handlers have returned or panicked. After a panic that is before
// anything recovers it, which would end a stream as if it were whole.
func (x *exchange) end(w *response, panicked bool) {
	outer, ok := x.w.(gin.ResponseWriter) // net/http does not tell
	past := ok && outer.Written() && w.state != streaming
	if w.state == open && !panicked {
		w.begin()
	}
	whole := !panicked && !past && w.announced <= w.size
	loss := x.settle(w, whole, panicked)

	h, why := returned, tooLarge
	switch {
	case past:
		h, why = bypassed, misconfigured("an answer was written past the middleware, as by Engine.HandleContext")
	case loss != nil:
		h, why = lost, &rejection{kind: EventLost, err: loss}
	case panicked, w.state == streaming && !whole:
		h = cutShort
	}
	w.on(h)

	switch w.state {
	case refused:
		x.refuse(why)
	case broken:
		if h != cutShort {
			x.report(why.kind, why.err)
		}
		if !panicked {
			panic(http.ErrAbortHandler)
		}
	}
}

// settle ends the leases, and records the answer if it is an outcome. The error is that of the loss of a lease before.
func (x *exchange) settle(w *response, whole, panicked bool) (loss error) {
	leases, lost := x.leases, x.lost()
	x.leases = nil
	outcome := whole && !invitesRetry(w.status, w.fixed) || x.stands.Load()
	if !x.once || !outcome || lost != nil {
		return cmp.Or(lost, x.release(leases))
	}

	// The resource comes first: if its lease turns out to be lost, nothing is recorded.
	lost = x.release(leases[1:])
	if lost != nil {
		return cmp.Or(lost, x.release(leases[:1]))
	}
	switch {
	case panicked:
		return x.record(leases[0], x.withoutBody(http.StatusInternalServerError))
	case !whole:
		return x.record(leases[0], x.withoutBody(w.status))
	}
	return x.record(leases[0], x.encode(w))
}

// recordFor is for how long a record is tried that no quorum has confirmed.
const recordFor = 30 * time.Second

// record records an answer, and returns the error of a lease that was lost before. Where too few nodes answer, the answer
// counts all the same, since the key was held to the end, and the record is tried in the background: to release the key
// instead would make the next request run again.
func (x *exchange) record(lease *core.Lease, answer []byte) (loss error) {
	err := lease.Complete(lease.Context(), answer) // one round
	if err == nil || errors.Is(err, core.ErrLost) {
		return err
	}
	log := x.m.locker.Logger().With("route", x.route.template, "identity", x.identity.name)
	x.m.admission.inside.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(lease.Context()), recordFor)
		defer cancel()
		ctx, stop := join.Contexts(ctx, x.m.admission.draining)
		defer stop()
		if err := lease.Complete(ctx, answer); err != nil {
			log.Error("httplock: an answer was not recorded: a repetition of its request may run again", "err", loggable(err))
		}
	})
	x.report(EventRecordOpen, err) // observers and loggers may be slow, and the record does not wait for them
	log.Warn("httplock: an answer may not be recorded: a repetition of its request may run again", "err", loggable(err))
	return nil
}
