package httplock

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// finish ends the leases and sends the response, after the handlers have returned or panicked. After a panic it runs
// before any middleware recovers, because a middleware that recovers would end a stream as if it were whole.
func (rs *requestState) finish(w *response, panicked bool) {
	hasBegun := w.state != stateOpen
	bypassed := w.sentInGin() || rs.hold.isBypassed(hasBegun)

	// A handler that has written nothing still has a status and a header.
	if !hasBegun && !panicked {
		w.freezeHeader()
	}

	if w.gaveUp() {
		rs.awaitDeadline()
	}

	isWhole := !panicked && !bypassed && w.contentLength <= w.written
	loss := rs.endLeases(w, isWhole, panicked)

	// What a goroutine of the handlers sends past Lock now does not change the record, but the client must not get it.
	bypassed = bypassed || rs.hold.isBypassed(hasBegun)

	t := onReturn
	var reason *rejection // of a refusal, and of a connection that is broken for another reason than onCutShort
	switch {
	case bypassed:
		t, reason = onBypass, errBypass
	case loss != nil && w.ginBegun: // a refusal would continue a success
		t, reason = onBypass, &rejection{kind: EventLost, err: loss}
	case loss != nil:
		t, reason = onLeaseLost, &rejection{kind: EventLost, err: loss}
	case panicked, w.state == stateStreaming && !isWhole:
		t = onCutShort
	case w.state == stateOversized:
		reason = &rejection{kind: EventAnswerTooLarge, err: w.tooLarge()}
	}
	w.transition(t)

	switch w.state {
	case stateRefused:
		rs.refuse(reason)
	case stateBroken:
		if t != onCutShort {
			rs.report(reason.kind, reason.err)
		}
		if !panicked { // otherwise the panic of the handler goes on
			panic(http.ErrAbortHandler)
		}
	}
}

// awaitDeadline waits until the context of the request has ended, if its deadline has come. The context of the handlers
// has another timer, which may be a moment ahead. A middleware that responds at the deadline looks at the first one.
func (rs *requestState) awaitDeadline() {
	ctx := rs.r.Context()
	at, limited := ctx.Deadline()
	if !limited || time.Now().Before(at) {
		return
	}

	select {
	case <-ctx.Done():
	case <-time.After(time.Second): // the context is not one of the standard library's
	}
}

var errBypass = misplaced(
	"Write to the ResponseWriter that the handler of the route is given: not to one that a middleware kept, "+
		"and not through Engine.HandleContext. A middleware must not turn a stream into a redirect or a response without a "+
		"body, nor take its connection over.",
	"a response was written past the middleware",
)

// endLeases ends the leases, and records the response if it is an outcome. It returns the error of a lease that was
// lost before its end, or the loss that the handler has reported.
func (rs *requestState) endLeases(w *response, isWhole, panicked bool) (loss error) {
	leases := rs.leases
	loss = rs.lostError()
	if reported := rs.reportedLoss.Swap(&handlersOver); reported != nil {
		loss = cmp.Or(loss, *reported)
	}

	invites := invitesRetry(w.status, w.frozen) || invitesRetry(w.status, w.header) // with its trailers
	isOutcome := isWhole && !w.gaveUp() && !invites
	if rs.recordForced.Load() {
		isOutcome = true
	}
	mustRecord := rs.idempotent && isOutcome && loss == nil
	if !mustRecord {
		rs.leases = nil
		releaseLoss := rs.releaseLeases(leases)
		return cmp.Or(loss, releaseLoss)
	}

	record := rs.encodeOutcome(w, isWhole, panicked)
	rs.leases = nil

	// The resource comes first: if its lease turns out to be lost, nothing is recorded.
	identity, others := leases[0], leases[1:]
	loss = rs.releaseLeases(others)
	if loss != nil {
		_ = rs.releaseLeases(leases[:1])
		return loss
	}

	return rs.recordResponse(identity, record)
}

// encodeOutcome returns the record of an outcome. A response of which a part is missing is recorded without its body.
func (rs *requestState) encodeOutcome(w *response, isWhole, panicked bool) []byte {
	switch {
	case panicked:
		return rs.encodeStatus(http.StatusInternalServerError)
	case !isWhole:
		return rs.encodeStatus(w.status)
	}
	return rs.encodeRecord(w)
}

// recordTimeout is how long the middleware tries to write a record that no quorum has confirmed.
const recordTimeout = 30 * time.Second

// recordResponse records a response, and returns the error of a lease that was lost before. If too few nodes answer,
// the response still counts, because the key was held to the end, and retryRecord goes on in the background. Releasing
// the key instead would make the next request run again.
func (rs *requestState) recordResponse(lease *core.Lease, record []byte) (loss error) {
	err := lease.Complete(lease.Context(), record) // one round
	if err == nil || errors.Is(err, core.ErrLost) {
		return err
	}

	// The retry starts before the report, because observers and loggers may be slow.
	log := rs.m.locker.Logger().With("route", rs.route.template, "identity", rs.identity.name)
	a := rs.m.admission
	a.gate.Go(func() { retryRecord(a.drainCtx, lease, record, log) })
	rs.report(EventRecordOpen, err)
	log.Warn("httplock: an answer may not be recorded: a repetition of its request may run again",
		"err", redactKey(err))
	return nil
}

// retryRecord tries to write a record until recordTimeout or the end of drainCtx.
func retryRecord(drainCtx context.Context, lease *core.Lease, record []byte, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(lease.Context()), recordTimeout)
	defer cancel()
	ctx, stop := join.Contexts(ctx, drainCtx)
	defer stop()

	if err := lease.Complete(ctx, record); err != nil {
		log.Error("httplock: an answer was not recorded: a repetition of its request may run again",
			"err", redactKey(err))
	}
}
