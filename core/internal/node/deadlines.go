package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A nodeContext carries the values of the caller's context, for the hooks of the client, and the deadline of the
// round. It does not end with the caller's context: a request with an unknown result costs more than one that is
// answered late.
//
// It ends with its deadline, and so does the work of a client beside the request: waiting for a connection,
// dialing, greeting the server, and retrying these as its options say. If the hooks held a call back until the
// deadline, the call gets a node timeout from the time when it reaches the client.
type nodeContext struct {
	context.Context // of the caller
	deadline        time.Time
	deadlines       *deadlines
	step            atomic.Int64 // the step of the deadline; 0 until Done is called
}

// timeoutContext returns a context that ends a node timeout from now.
func (g *Group) timeoutContext() *nodeContext {
	return &nodeContext{
		Context:   context.Background(), //nolint:forbidigo // bounded by the node timeout
		deadline:  time.Now().Add(g.Conf.Timeout),
		deadlines: g.deadlines,
	}
}

func (c *nodeContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *nodeContext) Done() <-chan struct{} {
	step := c.step.Load()
	if step == 0 {
		// All callers must get the same channel, so the first step stays.
		c.step.CompareAndSwap(0, c.deadlines.stepOf(c.deadline))
		step = c.step.Load()
	}
	return c.deadlines.channel(step)
}

func (c *nodeContext) Err() error {
	select {
	case <-c.Done():
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A deadlines closes channels when the deadlines of calls have passed. Time is divided into steps. The deadlines of
// a step share a channel and a timer, which fires after the last of them. A timer and a channel for each request
// would add half as many allocations again.
type deadlines struct {
	base    time.Time
	timeout time.Duration // of a node
	length  time.Duration // of a step: a channel is closed this much too late, at most

	mu       sync.Mutex              // guards channels
	channels map[int64]chan struct{} // by step; only channels that are still open
}

// lateParts divides the node timeout. The quotient is the time by which a call may outlast its deadline.
const lateParts = 16

func newDeadlines(timeout time.Duration) *deadlines {
	return &deadlines{
		base:     time.Now(),
		timeout:  timeout,
		length:   max(timeout/lateParts, time.Millisecond),
		channels: map[int64]chan struct{}{},
	}
}

// stepOf returns the step of a deadline. If the deadline has passed, it returns the step of a deadline one node
// timeout from now.
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

// channel returns a channel that is closed when the deadlines of a step have passed.
func (d *deadlines) channel(step int64) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, known := d.channels[step]; known {
		return c
	}

	left := time.Until(d.base.Add(time.Duration(step) * d.length))
	if left <= 0 {
		return closed
	}

	c := make(chan struct{})
	d.channels[step] = c
	time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.channels, step)
		close(c)
	})
	return c
}

// An observedContext is the context of a request for the observer. It does not end, because the observer is called
// for a reply even after the deadline.
type observedContext struct {
	context.Context // of the caller
	deadline        time.Time
}

func (c observedContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c observedContext) Done() <-chan struct{}       { return nil }
func (c observedContext) Err() error                  { return nil }
