package httplock

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
)

// How long an answer waits for the nodes to confirm that its key is free. A client that goes on with another
// request then finds it free, wherever that request goes; a node that is slow delays nobody.
const releaseWait = 100 * time.Millisecond

// run runs the handlers under what the request was granted, and sees to their answer.
func (x *exchange) run() {
	c, before := x.c, x.c.Request.Context()
	ctx, stop := x.handlerContext()
	defer stop()
	w := newResponse(x)
	c.Writer = w
	c.Request = c.Request.WithContext(context.WithValue(ctx, holdKey{}, x.inner))
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
	if x.lease != nil {
		wait := releaseWait
		if w.state == keeping {
			wait = core.Forever // what is kept back is not sent before
		}
		if errors.Is(x.release(x.lease, wait), core.ErrLost) {
			lost = true // the nodes know of a holder that this process has not heard of
		}
	}
	if x.once != nil && !lost && w.state != hijacked && !x.inner.refused.Load() {
		lost = !x.record(w)
	}
	switch {
	case !lost:
		w.send()
	case w.state == hijacked:
		x.count(EventLost) // the handler has the connection
	case w.sent():
		x.count(EventAborted)
		w.abort()
	default:
		w.discard()
		x.refuse(EventLost, core.ErrLost)
	}
}

// lost reports whether a lease of the request ended before the handler returned, and not because the handler gave it
// back.
func (x *exchange) lost() bool {
	return slices.ContainsFunc(x.grants, func(g *grant) bool { return g.Lost() != nil })
}

// end gives back what is left, whatever happened. After a panic it runs before anything recovers.
func (x *exchange) end() {
	for _, g := range slices.Backward(x.grants) {
		if !g.settled {
			_ = x.release(g, releaseWait)
		}
	}
}

// release settles a grant by giving it back, in the background. It waits for at most wait for the outcome.
func (x *exchange) release(g *grant, wait time.Duration) error {
	g.settled = true
	released := make(chan error, 1)
	x.m.admission.inside.Go(func() { released <- g.Release(context.WithoutCancel(g.Context())) })
	select {
	case err := <-released:
		return err
	case <-time.After(wait):
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
