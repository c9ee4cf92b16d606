package httplock

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/lockkit/lockkit/core"
)

// How long an answer waits for the nodes to confirm that its key is free. A client that goes on with another
// request then finds it free, wherever that request goes; a node that is slow delays nobody.
const releaseWait = 100 * time.Millisecond

// run runs the handlers under what the request got, and sees to their answer.
func (x *exchange) run() {
	c := x.c
	w := newResponse(x)
	before := c.Request.Context()
	c.Writer = w
	c.Request = c.Request.WithContext(context.WithValue(x.handlerContext(), holdKey{}, x.inner))
	func() {
		defer func() { // also for what recovers from a panic further out
			c.Writer = w.ResponseWriter
			c.Request = c.Request.WithContext(before)
		}()
		c.Next()
	}()
	x.conclude(w)
}

// conclude answers, once the handlers have returned.
func (x *exchange) conclude(w *response) {
	lost := x.lost()
	if lease := x.lease; lease != nil {
		x.lease = nil
		wait := releaseWait
		if w.keeping {
			wait = 0 // for as long as it takes: what is kept back is not sent before
		}
		if errors.Is(x.m.release(lease, wait), core.ErrLost) {
			lost = true // the nodes know of a holder that this process has not heard of
		}
	}
	if x.once != nil && !lost && !w.hijacked && !x.inner.refused.Load() {
		lost = !x.record(w)
	}
	switch {
	case !lost:
		w.send()
	case w.hijacked:
		x.count(KindLost) // the handler has the connection
	case w.sent:
		x.count(KindAborted)
		w.abort()
	default:
		w.discard()
		x.refuse(refusal(KindLost, core.ErrLost))
	}
}

// lost reports whether a lease of the request ended before the handler returned, and not because the handler gave it
// back.
func (x *exchange) lost() bool {
	lost := func(lease *core.Lease) bool { return lease != nil && lease.Lost() != nil }
	return lost(x.lease) || x.once != nil && lost(x.once.lease)
}

// end gives back what is left, whatever happened. After a panic it runs before anything recovers.
func (x *exchange) end() {
	if x.lease != nil {
		x.m.giveBack(x.lease)
	}
	if x.once != nil && x.once.lease != nil {
		x.m.giveBack(x.once.lease)
	}
	for _, stop := range x.stops {
		stop()
	}
}

// giveBack releases a lease where nobody cares for how it goes.
func (m *Middleware) giveBack(lease *core.Lease) { _ = m.release(lease, releaseWait) }

// release releases a lease in the background and waits for at most wait, if it is not 0, for the outcome.
func (m *Middleware) release(lease *core.Lease, wait time.Duration) error {
	released := make(chan error, 1)
	m.house.spawn(func() { released <- lease.Release(context.WithoutCancel(lease.Context())) })
	if wait == 0 {
		return <-released
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-released:
		return err
	case <-timer.C:
		return nil
	}
}

// abort breaks the connection, so that the client does not take the answer for complete. The panic alone would
// not do it where gin.Recovery swallows it and net/http then ends the answer as if nothing had happened; the
// deadline alone would have everything further out believe that all went well.
func (w *response) abort() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0)) // not everything between us and net/http can
	panic(http.ErrAbortHandler)
}
