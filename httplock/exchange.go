package httplock

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// An exchange is one request on its way through the middleware: it waits, runs, and ends.
type exchange struct {
	m     *Middleware
	c     *gin.Context
	opts  []core.Option // of its leases
	asked time.Time

	request context.Context // the request's, as it came
	ctx     context.Context // of the innermost lease that the request got; until then, request
	stops   []func() bool   // of what follows a context until the request is over

	outer *hold       // of the Locks around this one
	inner *hold       // of this one
	once  *claim      // of an idempotent request
	lease *core.Lease // on the resource; nil if there is none, or an outer Lock has it
}

// A hold is what Locks further in must know of one that is around them.
type hold struct {
	outer   *hold
	locks   *core.Locker
	key     string      // of the resource
	once    string      // of the idempotent request
	refused atomic.Bool // one further in answered in place of the handler
}

type holdKey struct{}

// find returns the first of h and those around it that is so.
func (h *hold) find(is func(*hold) bool) *hold {
	for h != nil && !is(h) {
		h = h.outer
	}
	return h
}

func (m *Middleware) exchange(c *gin.Context) *exchange {
	request := c.Request.Context()
	x := &exchange{m: m, c: c, opts: append(slices.Clip(m.opts), core.WithName(c.FullPath())), asked: time.Now(), request: request, ctx: request}
	x.outer, _ = request.Value(holdKey{}).(*hold)
	x.inner = &hold{outer: x.outer, locks: m.locks}
	return x
}

func (x *exchange) count(k Kind) { x.m.event(x.ctx, x.c.FullPath(), k) }

func (m *Middleware) event(ctx context.Context, route string, k Kind) {
	m.locks.Event(ctx, core.Event{Source: source, Name: route, Kind: string(k)})
}

// wait gets the request what its handler may run under. If that fails, it answers.
func (x *exchange) wait() bool {
	defer x.m.house.served()
	return x.identify() && x.read() && x.take()
}

// identify finds the keys.
func (x *exchange) identify() bool {
	tenant, err := x.m.tenantOf(x.c)
	if err == nil {
		x.inner.key, err = x.m.resource(x.c, tenant)
	}
	switch {
	case errors.Is(err, errRoute):
		x.refuse(refusal(KindMisconfigured, err))
		return false
	case err != nil:
		x.refuse(refusal(KindKeyMissing, err))
		return false
	}
	return x.identifyOnce(tenant)
}

// read reads the body before the request waits. See readBody.
func (x *exchange) read() bool {
	if x.once == nil && x.m.maxWait == 0 {
		return true
	}
	b, err := readBody(x.c.Request, x.m.bodyLimit)
	switch {
	case errors.Is(x.request.Err(), context.Canceled):
		x.refuse(refusal(KindGone, err))
		return false
	case err != nil:
		x.refuse(bodyFault(err))
		return false
	}
	return x.once == nil || x.claim(b)
}

// take waits for the resource.
func (x *exchange) take() bool {
	key := x.inner.key
	if key == "" {
		return true
	}
	if x.outer.find(func(h *hold) bool { return h.key == key && h.locks == x.m.locks }) != nil {
		x.count(KindNested)
		return true
	}
	house := x.m.house
	if !house.queue(key, x.m.perKey) {
		x.refuse(refusal(KindQueueFull, nil).after(x.m.maxWait)) // by then all of them have been answered
		return false
	}
	defer house.unqueue(key)
	lease, err := x.acquire(func(ctx context.Context) (*core.Lease, error) {
		wait := x.patience()
		if x.m.maxWait == 0 {
			return x.m.locks.TryAcquire(ctx, key, x.opts...)
		}
		return x.m.locks.Acquire(ctx, key, append(x.opts, core.WithMaxWait(wait))...)
	})
	if err != nil {
		x.refuse(x.denied(err, KindBusy))
		return false
	}
	x.lease, x.ctx = lease, lease.Context()
	return true
}

// patience is how long the request may wait: a key that comes when there is no time left to use it is worse
// than none.
func (x *exchange) patience() time.Duration {
	wait := x.m.maxWait
	if deadline, ok := x.request.Deadline(); ok {
		wait = min(wait, time.Until(deadline)*3/4)
	}
	if s, ok := x.request.Value(http.ServerContextKey).(*http.Server); ok && s.WriteTimeout > 0 {
		wait = min(wait, (s.WriteTimeout-time.Since(x.asked))*3/4)
	}
	return max(wait, time.Millisecond)
}

var errDraining = errors.New("httplock: draining")

// acquire calls get with a context that ends when the request or a lease of it ends, or the server drains, until
// get has returned a lease: from then on it goes on, because the handler may outlast the request.
func (x *exchange) acquire(get func(ctx context.Context) (*core.Lease, error)) (*core.Lease, error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(x.ctx))
	stays := []func() bool{
		context.AfterFunc(x.request, func() { cancel(context.Cause(x.request)) }),
		context.AfterFunc(x.m.house.draining, func() { cancel(errDraining) }),
	}
	if x.once != nil && x.once.lease != nil {
		stays = append(stays, context.AfterFunc(x.once.lease.Context(), func() { cancel(core.ErrLost) }))
	}
	lease, err := get(ctx)
	for _, stay := range stays {
		if !stay() && err == nil { // at the same moment: ctx has ended, or is about to
			<-ctx.Done()
			x.m.giveBack(lease)
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return lease, nil
}

// denied is the reply to a request that got no lease.
func (x *exchange) denied(err error, held Kind) Refusal {
	var retry time.Duration
	if op, ok := errors.AsType[*core.OpError](err); ok {
		retry = op.RetryAfter
	}
	switch {
	case errors.Is(err, errDraining), errors.Is(err, core.ErrClosed):
		return refusal(KindDraining, err)
	case errors.Is(err, core.ErrDone):
		return refusal(KindDone, err)
	case errors.Is(err, core.ErrHeld):
		return refusal(held, err).after(retry)
	case x.lost(), errors.Is(context.Cause(x.request), core.ErrLost): // its own, or that of a Lock around this one
		return refusal(KindLost, err)
	case errors.Is(x.request.Err(), context.DeadlineExceeded):
		return refusal(held, err)
	case x.request.Err() != nil:
		return refusal(KindGone, err)
	}
	return refusal(KindUnavailable, err).after(retry)
}

// handlerContext ends with any lease of the request, at its deadline, and when its client goes away.
func (x *exchange) handlerContext() context.Context {
	ctx := x.ctx
	if ctx == x.request { // a Lock around this one has seen to it
		return ctx
	}
	if deadline, ok := x.request.Deadline(); ok {
		timed, cancel := context.WithDeadline(ctx, deadline)
		x.stops = append(x.stops, func() bool { cancel(); return true })
		ctx = timed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	follow := func(other context.Context) func() bool {
		return context.AfterFunc(other, func() {
			if cause := context.Cause(other); x.endsBy(cause) {
				cancel(cause)
			}
		})
	}
	x.stops = append(x.stops, follow(x.request), func() bool { cancel(nil); return true })
	if x.once != nil {
		x.stops = append(x.stops, follow(x.once.lease.Context()))
	}
	return ctx
}

// endsBy: the end of the request's context with this cause is one for the handler as well. Its deadline is set
// already, and an idempotent request goes on without its client.
func (x *exchange) endsBy(cause error) bool {
	return cause != context.DeadlineExceeded && (x.once == nil || cause != context.Canceled)
}
