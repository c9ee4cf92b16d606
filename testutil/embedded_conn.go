package testutil

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// conn is the client's end of an in-memory connection. It also stands for the
// network: it holds requests that were written and replies that were not read
// yet. So faults can act on single requests, and a Write never waits for the
// node. Its worker executes the requests in order.
//
// node.mu guards all fields except node, peer and out.
type conn struct {
	node *Node
	peer *server.Peer
	out  *bytes.Buffer // the replies that peer has written; used by the worker only

	partial  []byte // the beginning of a request
	requests [][]string
	replies  []reply
	work     bell // rings when the worker must look again
	arrival  bell // rings when a Read must look again
	closed   bool // by the client
	broken   bool // by the node

	losesRequests bool // no further request executes
	losesReplies  bool // no further reply is sent
	subscriptions map[subscription]bool

	readDeadline, writeDeadline time.Time
}

// reply is a reply on its way to the client. It arrives delay after executed.
type reply struct {
	data     []byte
	executed time.Time
	delay    time.Duration
}

// isHandshake has the commands with which clients greet a server or keep a
// connection alive. Scripted faults do not affect them.
var isHandshake = map[string]bool{"HELLO": true, "AUTH": true, "SELECT": true, "CLIENT": true, "PING": true}

func newConn(n *Node) *conn {
	out := &bytes.Buffer{}
	return &conn{
		node: n,
		peer: server.NewPeer(bufio.NewWriter(out)),
		out:  out,
	}
}

// wakeLocked wakes the goroutines that wait for a change of the connection.
func (c *conn) wakeLocked() {
	c.work.ring()
	c.arrival.ring()
}

// breakLocked ends the connection from the node's side. Requests that were not
// executed and replies that are still to arrive are lost.
func (c *conn) breakLocked() {
	c.broken = true
	c.requests = nil
	delete(c.node.conns, c)
	c.wakeLocked()
}

// serve executes requests until the connection is broken, or until the client
// has closed it and all its requests have executed.
func (c *conn) serve() {
	for {
		args, hook := c.nextRequest()
		if args == nil {
			return
		}

		var action Action
		if hook != nil && !isHandshake[args[0]] {
			action = hook(args)
		}
		if action.DropRequest {
			c.loseRequests()
			continue
		}

		alive := c.execute(args, action)
		if !alive {
			return
		}
	}
}

// nextRequest waits for a request, and returns it with the hook that decides
// about it. It returns nil if the connection is over.
func (c *conn) nextRequest() (args []string, hook func([]string) Action) {
	n := c.node
	for {
		n.mu.Lock()
		if len(c.requests) > 0 && !c.losesRequests {
			args = c.requests[0]
			c.requests = slices.Delete(c.requests, 0, 1)
			hook = n.faults.onRequest
			n.mu.Unlock()
			return args, hook
		}
		if c.broken || c.closed {
			delete(n.conns, c)
			n.mu.Unlock()
			return nil, nil
		}
		wake := c.work.next()
		n.mu.Unlock()

		<-wake
	}
}

// loseRequests makes nextRequest ignore all further requests.
func (c *conn) loseRequests() {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.losesRequests = true
}

// execute waits until the request may execute, executes it and sends the reply.
// It reports whether the connection is still alive.
func (c *conn) execute(args []string, action Action) bool {
	n := c.node
	locked := c.lockExec(action.Delay)
	if !locked {
		return false
	}
	defer n.exec.Unlock()

	if action.Twice {
		c.dispatch(args)
		c.out.Reset()
	}

	c.dispatch(args)
	data := bytes.Clone(c.out.Bytes())
	c.out.Reset()
	return c.answer(args, data, action)
}

// answer sends the reply to a request, unless a fault loses it. It reports
// whether the connection is still alive.
func (c *conn) answer(args []string, data []byte, action Action) bool {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()

	if c.broken {
		return false
	}

	if n.faults.dropReplies > 0 && !isHandshake[args[0]] {
		n.faults.dropReplies--
		c.breakLocked()
		return false
	}

	if action.DropReply {
		c.losesReplies = true
	}
	if !c.losesReplies {
		c.replies = append(c.replies, reply{data, time.Now(), action.ReplyDelay})
		c.arrival.ring()
	}

	if c.peer.Closed() { // QUIT
		c.breakLocked()
		return false
	}

	return true
}

// lockExec waits until the node does not hang, and until delay and the delay of
// [Node.Slow] have passed since the call. Then it locks node.exec and returns
// true. If the connection breaks first, it returns false without the lock.
func (c *conn) lockExec(delay time.Duration) bool {
	n := c.node
	began := time.Now()
	for {
		n.exec.Lock()
		n.mu.Lock()
		if c.broken {
			n.mu.Unlock()
			n.exec.Unlock()
			return false
		}

		wait := time.Until(began.Add(delay + n.faults.slow))
		if !n.faults.hung && wait <= 0 {
			n.mu.Unlock()
			return true
		}

		wake := c.work.next()
		if n.faults.hung {
			wait = 0 // only a change of the faults ends the wait
		}
		n.mu.Unlock()
		n.exec.Unlock()
		waitFor(wake, wait)
	}
}

// dispatch executes a request. node.exec must be held.
func (c *conn) dispatch(args []string) {
	handled := c.subscribe(args)
	if !handled {
		c.node.dispatch(c.peer, args)
	}
}

// waitFor waits for wake, and at most d if d is positive.
func waitFor(wake <-chan struct{}, d time.Duration) {
	if d <= 0 {
		<-wake
		return
	}

	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-wake:
	case <-t.C:
	}
}

// Write hands requests to the worker. It succeeds while the node hangs, as with a socket.
func (c *conn) Write(p []byte) (int, error) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()

	switch {
	case c.closed:
		return 0, c.opError("write", net.ErrClosed)
	case c.broken:
		return 0, c.opError("write", syscall.EPIPE)
	case hasPassed(c.writeDeadline):
		return 0, c.opError("write", os.ErrDeadlineExceeded)
	}

	if err := c.parseLocked(p); err != nil {
		c.breakLocked()
		return 0, c.opError("write", err)
	}

	c.work.ring()
	return len(p), nil
}

// parseLocked adds the complete requests in partial and p to requests, and counts them. It keeps the rest in partial.
func (c *conn) parseLocked(p []byte) error {
	if len(c.partial) > 0 {
		p = append(c.partial, p...)
	}

	for {
		args, size, err := parseRequest(p)
		if size == 0 || err != nil {
			c.partial = bytes.Clone(p)
			return err
		}

		p = p[size:]
		if len(args) == 0 {
			continue
		}
		args[0] = strings.ToUpper(args[0])
		c.node.calls[args[0]]++
		c.requests = append(c.requests, args)
	}
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		size, wake, wait, err := c.tryRead(p)
		if wake == nil {
			return size, err
		}
		waitFor(wake, wait)
	}
}

// tryRead reads bytes that have arrived. If there are none yet, it returns a
// channel: the caller must try again when wake is closed, or after wait if wait
// is positive. Otherwise wake is nil.
func (c *conn) tryRead(p []byte) (size int, wake <-chan struct{}, wait time.Duration, err error) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()

	if c.closed {
		return 0, nil, 0, c.opError("read", net.ErrClosed)
	}
	if hasPassed(c.readDeadline) {
		return 0, nil, 0, c.opError("read", os.ErrDeadlineExceeded)
	}
	if len(p) == 0 {
		return 0, nil, 0, nil
	}

	next := c.readDeadline
	if len(c.replies) > 0 {
		first := &c.replies[0]
		arrives := first.executed.Add(first.delay + n.faults.slowReplies)
		if !arrives.After(time.Now()) {
			size = copy(p, first.data)
			first.data = first.data[size:]
			if len(first.data) == 0 {
				c.replies = slices.Delete(c.replies, 0, 1)
			}
			return size, nil, 0, nil
		}

		sooner := next.IsZero() || arrives.Before(next)
		if sooner {
			next = arrives
		}
	}

	if c.broken {
		return 0, nil, 0, io.EOF
	}
	if !next.IsZero() {
		wait = max(time.Until(next), 1)
	}

	return 0, c.arrival.next(), wait, nil
}

// Close closes the client's end. Requests written before still execute, like
// those in flight to a server.
func (c *conn) Close() error {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()

	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	c.wakeLocked()
	return nil
}

// hasPassed reports whether a deadline is set and has passed.
func hasPassed(deadline time.Time) bool {
	return !deadline.IsZero() && !deadline.After(time.Now())
}

func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadlines(&t, nil) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }
func (c *conn) SetDeadline(t time.Time) error      { return c.setDeadlines(&t, &t) }

// setDeadlines sets the deadlines that are not nil.
func (c *conn) setDeadlines(read, write *time.Time) error {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()

	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	if read != nil {
		c.readDeadline = *read
		c.arrival.ring() // a pending Read must look at its deadline again
	}
	if write != nil {
		c.writeDeadline = *write
	}

	return nil
}

func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Addr: c.RemoteAddr(), Err: err}
}

// nodeAddr is the net.Addr of a node: its name.
type nodeAddr string

func (nodeAddr) Network() string  { return "memory" }
func (a nodeAddr) String() string { return string(a) }

func (c *conn) LocalAddr() net.Addr  { return nodeAddr("client") }
func (c *conn) RemoteAddr() net.Addr { return nodeAddr(c.node.name) }

// SyscallConn lets a client's pool check whether an idle connection is broken
// before it sends a command, as it does with sockets.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return rawConn{c}, nil }

// rawConn is a syscall.RawConn without a file descriptor. Its Read returns an
// error if the connection is broken: a pool needs no more.
type rawConn struct{ *conn }

func (r rawConn) Read(func(fd uintptr) bool) error {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	if r.broken {
		return io.EOF
	}
	return nil
}

func (rawConn) Write(func(fd uintptr) bool) error { return nil }
func (rawConn) Control(func(fd uintptr)) error    { return nil }
