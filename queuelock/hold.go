package queuelock

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A hold is the leases of one delivery. They must outlive the task's context, because asynq ends that and
// hands the task to somebody else while the handler is still at work; so they live in a context of their
// own, which ends
//
//   - while they are waited for: with the task's context, or shortly before its deadline on a last attempt
//   - while the handler runs: when it has not returned a grace after the task's context ended
type hold struct {
	ctx          context.Context
	letGo        context.CancelCauseFunc
	impatient    []func() bool // stop what ends the waiting
	task, entity *core.Lease

	unwatch  func() bool
	returned chan struct{} // closed when the handler has returned
	watched  chan struct{} // closed when nobody watches for an overstay any more
}

var (
	errLastMoment = errors.New("the deadline of the last attempt came first")
	errOverstayed = errors.New("the handler has not returned after its context ended")
)

func newHold(ctx context.Context, last bool) *hold {
	h := &hold{}
	h.ctx, h.letGo = context.WithCancelCause(context.WithoutCancel(ctx))
	h.impatient = append(h.impatient, context.AfterFunc(ctx, func() { h.letGo(context.Cause(ctx)) }))
	if deadline, ok := ctx.Deadline(); ok && last {
		left := time.Until(deadline)
		// Early enough for asynq to store why, instead of that the deadline was exceeded.
		timer := time.AfterFunc(left-min(left/10, time.Second), func() { h.letGo(errLastMoment) })
		h.impatient = append(h.impatient, timer.Stop)
	}
	return h
}

// keep turns from waiting to running. It reports false if the waiting had ended before, with the context as
// its cause.
func (h *hold) keep(ctx context.Context, d *delivery) bool {
	for _, stop := range h.impatient {
		if !stop() {
			<-h.ctx.Done()
			return false
		}
	}
	h.returned, h.watched = make(chan struct{}), make(chan struct{})
	h.unwatch = context.AfterFunc(ctx, func() {
		defer close(h.watched)
		grace := time.NewTimer(d.r.conf.grace)
		defer grace.Stop()
		select {
		case <-h.returned:
		case <-grace.C:
			h.letGo(errOverstayed)
			d.event(h.ctx, EventAbandoned)
			d.r.conf.logger.Error("queuelock: the handler has not returned although its context has ended: its leases are not renewed any more, and another delivery may run beside it",
				d.attrs(h.ctx, "after", d.r.conf.grace, "cause", context.Cause(ctx))...)
		}
	})
	return true
}

// context is the handler's: that of the innermost lease, which also ends with the task's own and with the
// lease of the task.
func (h *hold) context(ctx context.Context, identity string) (context.Context, func()) {
	inner := h.innermost()
	run := context.WithValue(inner.Context(), executionKey{}, Execution{identity, inner.FencingToken()})
	return core.Join(run, h.task.Context(), ctx)
}

func (h *hold) innermost() *core.Lease {
	if h.entity != nil {
		return h.entity
	}
	return h.task
}

// lost is the error of the lease that was lost, if one was.
func (h *hold) lost() error {
	for _, lease := range []*core.Lease{h.task, h.entity} {
		if lease == nil {
			continue
		}
		if err := lease.Lost(); err != nil {
			return err
		}
	}
	return nil
}

// release gives the leases back. What could not be confirmed core logs, goes on trying and lets run out.
func (h *hold) release(ctx context.Context) {
	if h.entity != nil {
		h.entity.Release(ctx)
	}
	if h.task != nil {
		h.task.Release(ctx)
	}
}

// end is called when the leases are released or completed.
func (h *hold) end() {
	for _, stop := range h.impatient {
		stop()
	}
	if h.unwatch != nil {
		close(h.returned)
		if !h.unwatch() {
			<-h.watched
		}
	}
	h.letGo(nil)
}
