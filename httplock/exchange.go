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
	route string
	opts  []core.CallOption // of its leases
	asked time.Time

	request context.Context // the request's, as it came
	ctx     context.Context // of the innermost lease that the request was granted; until then, request

	outer  *hold    // of the Locks around this one
	inner  *hold    // of this one
	once   *claim   // of an idempotent request
	lease  *grant   // on the resource; nil if there is none, or an outer Lock has it
	grants []*grant // all, in the order in which they were granted
}

// A grant is a lease of the request.
type grant struct {
	*core.Lease
	settled bool // it was given back or recorded, or somebody else goes on recording it
}

// A hold is what Locks further in must know of one that is around them.
type hold struct {
	outer   *hold
	locker  *core.Locker
	key     string      // of the resource
	once    string      // of the idempotent request
	refused atomic.Bool // one further in answered in place of the handler
}

type holdKey struct{}

// has reports whether h, or a Lock around it, has that key.
func (h *hold) has(locker *core.Locker, key string) bool {
	return h != nil && (h.locker == locker && (h.key == key || h.once == key) || h.outer.has(locker, key))
}

func (m *Middleware) exchange(c *gin.Context) *exchange {
	request := c.Request.Context()
	x := &exchange{m: m, c: c, route: c.FullPath(), asked: time.Now(), request: request, ctx: request}
	x.opts = append(slices.Clip(m.opts), core.Name(x.route))
	x.outer, _ = request.Value(holdKey{}).(*hold)
	x.inner = &hold{outer: x.outer, locker: m.locker}
	return x
}

// count may also be called after the request.
func (x *exchange) count(kind core.EventKind) {
	x.m.locker.Event(x.ctx, core.Event{Source: source, Name: x.route, Kind: kind})
}

// wait obtains what the handler needs to run, step by step. Like each of the steps it reports whether the request goes on;
// otherwise it has been answered.
func (x *exchange) wait() bool {
	defer x.m.admission.removeWaiter(anyKey)
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
		return x.refuse(EventMisconfigured, err)
	case err != nil:
		return x.refuse(EventKeyMissing, err)
	}
	return x.identifyOnce(tenant)
}

// read reads the body before the request waits. See readBody.
func (x *exchange) read() bool {
	if x.once == nil && x.m.maxWait == 0 {
		return true
	}
	b, err := readBody(x.c.Request, x.m.bodyLimit)
	_, tooLarge := errors.AsType[*http.MaxBytesError](err) // a limit that somebody else has set
	switch {
	case errors.Is(x.request.Err(), context.Canceled):
		return x.refuse(EventGone, err)
	case tooLarge:
		return x.refuse(EventBodyTooLarge, err)
	case err != nil:
		return x.refuse(EventBodyBroken, err)
	}
	return x.once == nil || x.claim(b)
}

// take waits for the resource.
func (x *exchange) take() bool {
	key := x.inner.key
	if key == "" {
		return true
	}
	if x.outer.has(x.m.locker, key) {
		x.count(EventNested)
		return true
	}
	if !x.m.admission.addWaiter(key, x.m.maxWaiters) {
		return x.refuse(EventQueueFull, nil)
	}
	defer x.m.admission.removeWaiter(key)
	var err error
	x.lease, err = x.acquire(key, x.patience())
	return err == nil || x.refuse(denied(err, EventBusy), err)
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
	return max(wait, min(x.m.maxWait, time.Millisecond)) // 0 only where nobody waits
}

// acquire waits for key, until the request or a lease of it ends, or the server drains. The error of such an end is its
// cause, unless more is known.
func (x *exchange) acquire(key string, patience time.Duration) (*grant, error) {
	get := x.m.locker.Acquire
	if patience == 0 {
		get = x.m.locker.TryAcquire
	}
	ctx, stop := core.Join(x.ctx, x.request, x.m.admission.draining)
	defer stop()
	lease, err := get(ctx, key, append(x.opts, core.MaxWait(patience))...)
	g := &grant{Lease: lease}
	if err == nil && ctx.Err() != nil { // at the same moment
		_ = x.release(g, releaseWait)
		err = ctx.Err()
	}
	switch {
	case core.ClassOf(err) == core.ClassCancelled:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	x.grants, x.ctx = append(x.grants, g), lease.Context()
	return g, nil
}

// denials are the replies to a request that got no lease, but for one that somebody else has.
var denials = map[core.Class]core.EventKind{
	core.ClassInvalid:     EventMisconfigured,
	core.ClassClosed:      EventDraining,
	core.ClassDone:        EventDone,
	core.ClassLost:        EventLost, // while the request waited for another: its own, or that of a Lock around this one
	core.ClassUnavailable: EventUnavailable,
}

// denied returns the kind of the reply to a request that got no lease, where held is that of one which somebody else has.
func denied(err error, held core.EventKind) core.EventKind {
	switch class := core.ClassOf(err); {
	case class == core.ClassHeld:
		return held
	case denials[class] != "":
		return denials[class]
	case errors.Is(err, context.DeadlineExceeded): // by which no quorum has answered
		return EventUnavailable
	}
	return EventGone
}

// handlerContext returns a context that ends with any lease of the request, at its deadline, and when its client goes
// away; but an idempotent request goes on without its client, because a repetition will ask for its outcome.
func (x *exchange) handlerContext() (ctx context.Context, stop func()) {
	if len(x.grants) == 0 { // a Lock around this one has seen to it
		return x.ctx, func() {}
	}
	request, free := x.request, func() {}
	if x.once != nil {
		request, free = withoutClient(request)
	}
	ends := []context.Context{request}
	for _, g := range x.grants {
		ends = append(ends, g.Context())
	}
	ctx, leave := core.Join(x.ctx, ends...)
	return ctx, func() { leave(); free() }
}

// withoutClient returns a context that ends as that of a request does, but not because the client has gone away.
func withoutClient(request context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(request))
	free := func() {}
	if deadline, ok := request.Deadline(); ok {
		ctx, free = context.WithDeadline(ctx, deadline)
	}
	unfollow := context.AfterFunc(request, func() {
		if cause := context.Cause(request); cause != context.Canceled && cause != context.DeadlineExceeded { //nolint:errorlint // the plain ones: a cause that wraps them is somebody's own
			cancel(cause)
		}
	})
	return ctx, func() { unfollow(); free(); cancel(nil) }
}
