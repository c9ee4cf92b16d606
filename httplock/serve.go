package httplock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/join"
)

// A host is what a router adds to a request.
type host interface {
	template() string // of the route
	param(name string) (value string, ok bool)
	unmatched() (skip bool) // what to do where there is no template

	proceed()                         // runs the handlers as if the middleware were not there
	run(w *response, r *http.Request) // runs them
	refuse(x *exchange, r Refusal)    // answers in their place
	answer(status int, body []byte)   // answers in their place, with the headers that are set
}

// An exchange is one request on its way through Lock or Once.
type exchange struct {
	m     *Middleware
	host  host
	w     http.ResponseWriter
	r     *http.Request
	route string
	asked time.Time

	around *execution // the Once around it
	body   *body

	lease    *core.Lease
	response *response
	settled  bool        // the lease was given back or recorded, or somebody else goes on recording it
	overdue  atomic.Bool // the max hold is over
}

// lock is Lock, from whichever entrance.
func (m *Middleware) lock(h host, w http.ResponseWriter, r *http.Request) {
	x := m.enter(h, w, r)
	if x == nil {
		return
	}
	defer m.admission.inside.Leave()
	if m.maxWait > 0 && !x.read(m.maxWait) || m.maxWait == 0 && m.readsBody && !x.read(m.bodyTimeout) {
		return
	}
	key, err := x.lockKey()
	if err != nil {
		x.refuseKey(err)
		return
	}
	if _, held := m.locker.Holding(r.Context(), key); held {
		x.count(EventNested)
		h.proceed()
		return
	}
	if !x.wait(key) {
		return
	}
	defer x.end()
	ctx, stop := x.handlerContext(r.Context())
	defer stop()
	x.response = newResponse(x, 0)
	h.run(x.response, r.WithContext(ctx))
	x.conclude(x.giveBack())
}

// enter admits a request, or returns nil: it was answered, or is none of ours.
func (m *Middleware) enter(h host, w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{m: m, host: h, w: w, r: r, route: h.template(), asked: time.Now()}
	x.around, _ = r.Context().Value(executionKey{}).(*execution)
	switch {
	case m.skips(r), x.route == "" && h.unmatched():
		h.proceed()
		return nil
	case x.route == "":
		x.refuse(EventMisconfigured, fmt.Errorf("%w: the request has no pattern: put the middleware inside the router, around the handler of a route (with chi, of v5.3 or newer, by r.With and not by r.Use); other routers must set r.Pattern", errRoute))
		return nil
	case !m.admission.inside.Enter():
		x.refuse(EventDraining, nil)
		return nil
	}
	return x
}

// skips reports whether the request is not to be locked. No header can make that of a method that changes something.
func (m *Middleware) skips(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return !m.safeMethods || m.maxHold == 0 && lasts(r)
	}
	return false
}

// lasts reports whether the request is for a WebSocket or server-sent events.
func lasts(r *http.Request) bool {
	return r.Header.Get("Upgrade") != "" || strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

// count may also be called after the request.
func (x *exchange) count(kind core.EventKind) {
	x.m.locker.Event(x.r.Context(), core.Event{Source: source, Name: x.route, Kind: kind})
}

// wait waits for the key, and reports whether the request goes on. Otherwise it was answered.
func (x *exchange) wait(key string) bool {
	if kind := x.m.admission.addWaiter(key, x.m.maxWaiters); kind != "" {
		return x.refuse(kind, nil)
	}
	defer x.m.admission.removeWaiter(key)
	patience := max(x.left(x.m.maxWait), min(x.m.maxWait, time.Millisecond)) // 0 only where nobody waits
	err := x.acquire(key, patience)
	return err == nil || x.refuse(denied(err, EventBusy), err)
}

// left returns how much of d is left since the request came, for all that is before its handler: a key that comes when
// there is no time to use it is worse than none.
func (x *exchange) left(d time.Duration) time.Duration {
	left := d - time.Since(x.asked)
	if deadline, ok := x.r.Context().Deadline(); ok {
		left = min(left, time.Until(deadline)*3/4)
	}
	if s := x.server(); s != nil && s.WriteTimeout > 0 {
		left = min(left, (s.WriteTimeout-time.Since(x.asked))*3/4)
	}
	return left
}

func (x *exchange) server() *http.Server {
	s, _ := x.r.Context().Value(http.ServerContextKey).(*http.Server)
	return s
}

// acquire waits for key, until the request ends, the client leaves or the server drains. The error of such an end is its
// cause, unless more is known.
func (x *exchange) acquire(key string, patience time.Duration) error {
	get := x.m.locker.Acquire
	if patience == 0 {
		get = x.m.locker.TryAcquire
	}
	ends := []context.Context{x.m.admission.draining}
	for e := x.around; e != nil; e = e.around {
		ends = append(ends, e.client)
	}
	ctx, stop := join.Contexts(x.r.Context(), ends...)
	defer stop()
	lease, err := get(ctx, key, append(slices.Clip(x.m.opts), core.Name(x.route), core.MaxWait(patience))...)
	x.lease = lease
	if err == nil && ctx.Err() != nil { // at the same moment
		_ = x.release(releaseWait)
		err = ctx.Err()
	}
	if core.ClassOf(err) == core.ClassCancelled {
		return context.Cause(ctx)
	}
	return err
}

// denials are the replies to a request that got no lease, but for one that somebody else has.
var denials = map[core.Class]core.EventKind{
	core.ClassInvalid:     EventMisconfigured,
	core.ClassClosed:      EventDraining,
	core.ClassDone:        EventDone,
	core.ClassLost:        EventLost, // of a Lock or Once around this one, while it waited
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

// errMaxHold is of class lost.
var errMaxHold = fmt.Errorf("httplock: held for longer than WithMaxHold: %w", core.ErrLost)

// handlerContext returns a context that ends with the lease, when the max hold is over, and when outer does.
func (x *exchange) handlerContext(outer context.Context) (ctx context.Context, stop func()) {
	ctx, leave := join.Contexts(x.lease.Context(), outer)
	if x.m.maxHold == 0 {
		return ctx, leave
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(x.m.maxHold, func() {
		x.overdue.Store(true)
		cancel(errMaxHold)
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
		leave()
	}
}

// How long an answer waits for the nodes to confirm that its key is free. A client that goes on with another
// request then finds it free, wherever that request goes; a node that is slow delays nobody.
const (
	releaseWait               = 100 * time.Millisecond
	forever     time.Duration = math.MaxInt64
)

// giveBack gives the key back after the handler has returned. The error is that of its loss before.
func (x *exchange) giveBack() (loss error) {
	loss = x.loss()
	wait := releaseWait
	if x.response.state == keeping {
		wait = forever // what is kept back is not sent before
	}
	if err := x.release(wait); loss == nil && errors.Is(err, core.ErrLost) {
		return err // the nodes know of a holder that this process has not heard of
	}
	return loss
}

// loss returns why the lease ended before the handler returned, and nil if the handler gave it back.
func (x *exchange) loss() error {
	if x.overdue.Load() {
		return errMaxHold
	}
	return x.lease.Lost()
}

// conclude answers, once the handlers have returned.
func (x *exchange) conclude(loss error) {
	w := x.response
	switch {
	case loss == nil && w.state == oversized:
		w.discard()
		x.refuse(EventAnswerTooLarge, nil)
	case loss == nil:
		w.send()
	case w.state == hijacked:
		x.disown()
		x.count(EventLost) // the handler has the connection
		x.warn("the lease was lost before the handler returned, which has taken the connection over", loss)
	case w.sent():
		x.abort(loss)
		panic(http.ErrAbortHandler)
	default:
		x.warn("the lease was lost before the handler returned: its answer is dropped", loss)
		w.discard()
		x.refuse(EventLost, core.ErrLost)
	}
}

// abort has the client not take for complete what it has of an answer.
func (x *exchange) abort(loss error) {
	x.disown()
	x.count(EventAborted)
	x.warn("the lease was lost after the answer had begun: its connection is broken", loss)
	if err := x.response.abort(); err != nil {
		x.m.locker.Logger().Error("httplock: the connection of an answer could not be broken whose lock was lost", "route", x.route, "err", err)
	}
}

// end gives back what is left, whatever happened. After a panic it runs before anything recovers, which would end an answer
// that has begun as if it were whole.
func (x *exchange) end() {
	if x.settled {
		return
	}
	loss := x.loss()
	x.disown()
	_ = x.release(releaseWait)
	if loss != nil && x.response != nil && x.response.sent() {
		x.abort(loss)
	}
}

// disown has no Once around the request record the answer: it is no outcome of the handler's.
func (x *exchange) disown() { x.around.discard() }

// release settles the lease by giving it back. It waits for at most wait for the outcome; the rest is in the background.
func (x *exchange) release(wait time.Duration) error {
	x.settled = true
	lease := x.lease
	if wait == forever {
		return lease.Release(lease.Context())
	}
	released := make(chan error, 1)
	x.m.admission.inside.Go(func() { released <- lease.Release(lease.Context()) })
	select {
	case err := <-released:
		return err
	case <-time.After(wait):
		return nil
	}
}
