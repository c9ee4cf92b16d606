package httplock

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
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
	loss := x.settle(w, !panicked && !past)
	h, why := returned, tooLarge
	switch {
	case past:
		h, why = bypassed, misconfigured("an answer was written past the middleware, as by Engine.HandleContext")
	case loss != nil:
		h, why = lost, &rejection{kind: EventLost, err: loss}
	case panicked, w.state == streaming && w.announced > w.size:
		h = cutShort
	}
	switch w.on(h); w.state {
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

// settle ends the leases, and records an answer that is whole, unless it asks for another try, which is to run again. The
// error is that of the loss of a lease before.
func (x *exchange) settle(w *response, whole bool) error {
	leases, lost := x.leases, loss(x.leases)
	x.leases = nil
	asksAgain := w.status >= 400 && w.fixed.Get("Retry-After") != "" || w.status == 429 || w.status == 503
	if x.once && whole && lost == nil && loss(x.held()) == nil && !asksAgain { // also further out
		if lost = x.release(leases[1:]); lost == nil {
			return x.record(leases[0], x.encode(w))
		}
		leases = leases[:1]
	}
	return cmp.Or(lost, x.release(leases))
}

const largestRecord = 60 << 10

// recordFor is for how long a record is tried that no quorum has confirmed.
const recordFor = 30 * time.Second

// omitted is a header of records without a body.
const omitted = "Idempotent-Omitted"

// record records an answer, and returns the error of a lease that was lost before. Where too few nodes answer, the answer
// counts all the same, since the key was held to the end, and the record is tried in the background: to release the key
// instead would make the next request run again.
func (x *exchange) record(lease *core.Lease, answer []byte) (loss error) {
	err := lease.Complete(lease.Context(), answer) // one round
	if err == nil || errors.Is(err, core.ErrLost) {
		return err
	}
	x.report(EventRecordOpen, err)
	log := x.m.locker.Logger().With("route", x.route, "identity", x.identity)
	log.Warn("httplock: an answer may not be recorded: a repetition of its request may run again", "err", err)
	x.m.admission.inside.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(lease.Context()), recordFor)
		defer cancel()
		ctx, stop := join.Contexts(ctx, x.m.admission.draining)
		defer stop()
		if err := lease.Complete(ctx, answer); err != nil {
			log.Error("httplock: an answer was not recorded: a repetition of its request may run again", "err", err)
		}
	})
	return nil
}

// encode returns what is recorded of an answer. What was set further out is left out: it is set again for a repetition, or
// not for a reason, as by a middleware that compresses for those who accept it. So is what belongs to one answer only.
func (x *exchange) encode(w *response) []byte {
	h, own := maps.Clone(w.fixed), []string{"Connection", "Date", "Keep-Alive", "Set-Cookie", "Upgrade"}
	maps.DeleteFunc(h, func(name string, values []string) bool {
		return slices.Contains(own, name) || slices.Equal(values, x.w.Header()[name])
	})
	if len(w.body) <= largestRecord && w.state != oversized && w.announced <= w.size {
		if b := x.wire(w.status, h, w.body); len(b) <= largestRecord {
			return b
		}
	}
	return x.wire(w.status, http.Header{omitted: {"true"}}, nil)
}

// wire returns the fingerprint of the request, and an answer in HTTP's own format.
func (x *exchange) wire(status int, h http.Header, body []byte) []byte {
	b := bytes.NewBuffer(append(make([]byte, 0, 2<<10+len(body)), x.fingerprint[:]...)) // most headers fit
	answer := http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: h, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}
	_ = answer.Write(b) // to memory
	return b.Bytes()
}

// errAnswered says that the request was answered from a record.
var errAnswered = errors.New("httplock: answered")

// replay answers with a record once more.
func (x *exchange) replay(record []byte) error {
	recorded, same := bytes.CutPrefix(record, x.fingerprint[:])
	if !same {
		return &rejection{kind: EventIdempotencyMismatch}
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(recorded)), nil)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(answer.Body)
	}
	if err != nil {
		return misconfigured("the record of an Idempotency-Key cannot be read: %w", err)
	}
	x.w.Header().Set("Idempotent-Replayed", "true")
	if answer.Header.Get(omitted) != "" {
		x.w.Header().Set("Idempotent-Status", strconv.Itoa(answer.StatusCode))
		return &rejection{kind: EventIdempotencyOmitted}
	}
	x.report(EventReplayed, nil)
	answer.Header.Del("Content-Length") // what is further out may change it
	x.answer(answer.StatusCode, answer.Header, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
	return errAnswered
}

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
	w := newResponse(x.r.Context(), x, status)
	defer w.forget() // after a panic
	maps.Copy(w.header, h)
	if c := x.gin; c != nil {
		c.Abort()
		defer func(w gin.ResponseWriter) { c.Writer = w }(c.Writer)
		c.Writer = w
	}
	x.show(func(r *http.Request) { write(w, r) })
	w.on(begun)
	w.on(returned)
}
