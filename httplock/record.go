package httplock

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// recordFor is for how long a record is repeated that no quorum has confirmed.
const recordFor = 30 * time.Second

// record records the outcome, and returns the error of a lease that was lost before. Where too few nodes answer it counts all the
// same: the key was held to the end. It is then recorded in the background, as long as that may help: releasing the key
// instead would have the next request run again.
func (x *exchange) record(o outcome) (loss error) {
	lease, ctx := x.lease, context.WithoutCancel(x.lease.Context())
	if (len(o.body) > partSize || len(o.body) > 0 && len(o.bytes()) > largestRecord) && x.storeParts(ctx, &o) != nil {
		o.omit()
	}
	result := o.encode()
	err := lease.Complete(lease.Context(), result) // one round
	if errors.Is(err, core.ErrLost) {
		return err
	}
	x.settled = true
	if err == nil {
		x.count(EventRecorded)
		return nil
	}
	x.count(EventRecordOpen)
	x.warn("whether the answer to an Idempotency-Key was recorded is open: a repetition may run again", err)
	x.m.admission.inside.Go(func() { // gin uses its context for another request by then
		ctx, cancel := context.WithTimeout(ctx, recordFor)
		defer cancel()
		ctx, stop := join.Contexts(ctx, x.m.admission.draining)
		defer stop()
		if err := lease.Complete(ctx, result); err != nil {
			x.m.locker.Logger().Error("httplock: the answer of an idempotent request could not be recorded: if it is sent again, it may be carried out again", x.about(err)...)
			return
		}
		x.count(EventRecorded)
	})
	return nil
}

// partSize is that of the parts of a body that are recorded apart, under keys of their own, because it does not fit into
// the record of the request.
const partSize = 60 << 10

// partKey is that of a part of the answer of one run, which the fencing token names.
func partKey(key string, token uint64, i int) string {
	return core.Key(idempotent, "part", key, strconv.FormatUint(token, 10), strconv.Itoa(i))
}

// partLonger is for how much longer than the record its parts are kept.
const partLonger = time.Minute

// storeParts records the body in parts, before the record that tells of them.
func (x *exchange) storeParts(ctx context.Context, o *outcome) error {
	for part := range slices.Chunk(o.body, partSize) {
		lease, err := x.m.locker.TryAcquire(ctx, partKey(x.lease.Key(), x.lease.FencingToken(), o.Parts), core.Name(x.route), core.Retention(x.m.retention+partLonger))
		if err != nil {
			return err
		}
		if err := lease.Complete(lease.Context(), part); err != nil { // one round
			_ = lease.Release(ctx) // or it runs out
			return err
		}
		o.Parts++
	}
	o.body = nil
	return nil
}

var errPart = errors.New("httplock: a part of the answer is not recorded any more")

// loadParts puts the body together again.
func (x *exchange) loadParts(key string, token uint64, o *outcome) error {
	ctx := x.r.Context()
	for i := range o.Parts {
		lease, err := x.m.locker.TryAcquire(ctx, partKey(key, token, i), core.Name(x.route))
		if err == nil {
			_ = lease.Release(ctx) // or it runs out
			return errPart
		}
		op, ok := errors.AsType[*core.OpError](err)
		if !ok || op.Record == nil {
			return err
		}
		o.body = append(o.body, op.Record.Result...)
	}
	return nil
}

// replay answers with the outcome once more. Of its headers only those count that are recorded today.
func (x *exchange) replay(key string, token uint64, o outcome) {
	err := x.loadParts(key, token, &o)
	switch {
	case errors.Is(err, errPart):
		o.omit()
	case err != nil:
		x.refuse(denied(err, EventUnavailable), err)
		return
	}
	h := x.w.Header()
	maps.DeleteFunc(o.Header, func(name string, _ []string) bool {
		return !slices.ContainsFunc(x.m.replayHeaders, func(n string) bool { return http.CanonicalHeaderKey(n) == name })
	})
	maps.Copy(h, o.Header)
	h.Set("Idempotent-Replayed", "true")
	if o.Omitted {
		h.Set("Idempotent-Status", strconv.Itoa(o.Status))
		x.refuse(EventIdempotencyOmitted, err)
		return
	}
	x.count(EventReplayed)
	x.host.answer(o.Status, o.body)
}
