package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A nodeContext carries the values of the caller's context, for the hooks of the client, and the deadline of the round. The
// end of the caller's context does not end it: a request whose fate is unknown costs more than one that is answered late. Its
// deadline does, and with that what a client does inside a call beside the request: it waits for a connection, dials, greets
// the server, and tries again, as often as its options say. A call that its hooks held back until the deadline has a node
// timeout from when it reaches the client.
type nodeContext struct {
	context.Context // whose values
	deadline        time.Time
	of              *deadlines
	step            atomic.Int64 // the one of the deadlines in which it ends; 0 = nobody has asked yet
}

func (g *Group) timeoutContext() *nodeContext {
	return &nodeContext{
		Context:  context.Background(), //nolint:forbidigo // bounded by the node timeout
		deadline: time.Now().Add(g.Conf.Timeout),
		of:       g.deadlines,
	}
}

func (c *nodeContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *nodeContext) Done() <-chan struct{} {
	step := c.step.Load()
	if step == 0 {
		c.step.CompareAndSwap(0, c.of.stepOf(c.deadline))
		step = c.step.Load()
	}
	return c.of.ended(step)
}

func (c *nodeContext) Err() error {
	select {
	case <-c.Done():
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A deadlines closes channels when the deadlines of calls have passed. Deadlines that are near one another share a channel,
// which is closed after the last of them: a timer and a channel for each request would be half as many allocations again.
type deadlines struct {
	base    time.Time
	timeout time.Duration // of a node
	length  time.Duration // of a step, and how late a channel may be closed

	mu       sync.Mutex
	channels map[int64]chan struct{} // of the deadlines to come, by the step in which they are
}

// lateBy is the part of a node timeout that a call may outlast its deadline by.
const lateBy = 16

func newDeadlines(timeout time.Duration) *deadlines {
	return &deadlines{base: time.Now(), timeout: timeout, length: max(timeout/lateBy, time.Millisecond), channels: map[int64]chan struct{}{}}
}

// stepOf is the step of a deadline, or of one that is a node timeout away if it has passed.
func (d *deadlines) stepOf(deadline time.Time) int64 {
	now := time.Now()
	if !deadline.After(now) {
		deadline = now.Add(d.timeout)
	}
	return int64(deadline.Sub(d.base)/d.length) + 1
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// ended is closed when the deadlines of a step have passed.
func (d *deadlines) ended(step int64) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, known := d.channels[step]; known {
		return c
	}
	rest := time.Until(d.base.Add(time.Duration(step) * d.length))
	if rest <= 0 {
		return closed
	}

	c := make(chan struct{})
	d.channels[step] = c
	time.AfterFunc(rest, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.channels, step)
		close(c)
	})
	return c
}

// An observedContext is the context of a request for the user's code. It does not end, because that code hears of a reply
// also after the deadline.
type observedContext struct {
	context.Context // whose values
	deadline        time.Time
}

func (c observedContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c observedContext) Done() <-chan struct{}       { return nil }
func (c observedContext) Err() error                  { return nil }
