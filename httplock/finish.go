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
func (rs *requestState) finish(w *response, panicked bool) {
	outer, ok := rs.w.(gin.ResponseWriter) // net/http does not tell
	past := ok && outer.Written() && w.state != stateStreaming
	if w.state == stateOpen && !panicked {
		w.freezeHeader()
	}
	whole := !panicked && !past && w.contentLength <= w.written
	loss := rs.endLeases(w, whole, panicked)

	h, why := onReturn, errResponseTooLarge
	switch {
	case past:
		h, why = onBypass, misconfigured("an answer was written past the middleware, as by Engine.HandleContext")
	case loss != nil:
		h, why = onLeaseLost, &rejection{kind: EventLost, err: loss}
	case panicked, w.state == stateStreaming && !whole:
		h = onCutShort
	}
	w.transition(h)

	switch w.state {
	case stateRefused:
		rs.refuse(why)
	case stateBroken:
		if h != onCutShort {
			rs.report(why.kind, why.err)
		}
		if !panicked {
			panic(http.ErrAbortHandler)
		}
	}
}

// settle ends the leases, and records the answer if it is an outcome. The error is that of the loss of a lease before.
func (rs *requestState) endLeases(w *response, whole, panicked bool) (loss error) {
	leases, lost := rs.leases, rs.lostError()
	rs.leases = nil
	outcome := whole && !invitesRetry(w.status, w.frozen) || rs.recordForced.Load()
	if !rs.idempotent || !outcome || lost != nil {
		return cmp.Or(lost, rs.releaseLeases(leases))
	}

	// The resource comes first: if its lease turns out to be lost, nothing is recorded.
	lost = rs.releaseLeases(leases[1:])
	if lost != nil {
		return cmp.Or(lost, rs.releaseLeases(leases[:1]))
	}
	switch {
	case panicked:
		return rs.recordResponse(leases[0], rs.encodeStatus(http.StatusInternalServerError))
	case !whole:
		return rs.recordResponse(leases[0], rs.encodeStatus(w.status))
	}
	return rs.recordResponse(leases[0], rs.encodeRecord(w))
}

// recordFor is for how long a record is tried that no quorum has confirmed.
const recordFor = 30 * time.Second

// record records an answer, and returns the error of a lease that was lost before. Where too few nodes answer, the answer
// counts all the same, since the key was held to the end, and the record is tried in the background: to release the key
// instead would make the next request run again.
func (rs *requestState) recordResponse(lease *core.Lease, answer []byte) (loss error) {
	err := lease.Complete(lease.Context(), answer) // one round
	if err == nil || errors.Is(err, core.ErrLost) {
		return err
	}
	log := rs.m.locker.Logger().With("route", rs.route.template, "identity", rs.identity.name)
	rs.m.admission.gate.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(lease.Context()), recordFor)
		defer cancel()
		ctx, stop := join.Contexts(ctx, rs.m.admission.drainCtx)
		defer stop()
		if err := lease.Complete(ctx, answer); err != nil {
			log.Error("httplock: an answer was not recorded: a repetition of its request may run again", "err", redactKey(err))
		}
	})
	rs.report(EventRecordOpen, err) // observers and loggers may be slow, and the record does not wait for them
	log.Warn("httplock: an answer may not be recorded: a repetition of its request may run again", "err", redactKey(err))
	return nil
}
