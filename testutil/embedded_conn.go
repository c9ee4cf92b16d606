package testutil

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// conn is the client's end of an in-memory connection. It stands for the
// network too: requests written and replies not yet read are held here, so
// that faults can act on single requests, and writing never waits for the
// node. Its worker executes the requests in order.
//
// All fields but node, peer and out are guarded by node.mu.
type conn struct {
	node *Node
	peer *server.Peer
	out  *bytes.Buffer // what peer has written; used by the worker only

	partial  []byte // the beginning of a request
	requests [][]string
	replies  []reply
	wake     chan struct{} // closed and replaced when something changes
	closed   bool          // by the client
	broken   bool          // by the node
	deaf     bool          // nothing the client sends arrives any more
	muted    bool          // nothing is answered any more
	channels map[subscription]bool

	readDeadline, writeDeadline time.Time
}

type reply struct {
	data     []byte
	executed time.Time
	delay    time.Duration
}

// handshake are the commands a client greets with or keeps alive by, which
// scripted faults leave alone.
var handshake = map[string]bool{"HELLO": true, "AUTH": true, "SELECT": true, "CLIENT": true, "PING": true}

func newConn(n *Node) *conn {
	out := &bytes.Buffer{}
	return &conn{
		node: n,
		peer: server.NewPeer(bufio.NewWriter(out)),
		out:  out,
		wake: make(chan struct{}),
	}
}

func (c *conn) wakeLocked() {
	close(c.wake)
	c.wake = make(chan struct{})
}

// breakLocked ends the connection from the node's side: requests that wait are
// lost, replies that have not arrived too.
func (c *conn) breakLocked() {
	c.broken = true
	c.requests = nil
	delete(c.node.conns, c)
	c.wakeLocked()
}

// serve is the worker: it ends when the connection is broken, or closed by the
// client and all it has sent is done.
func (c *conn) serve() {
	for {
		args, hook := c.next()
		if args == nil {
			return
		}
		var action Action
		if hook != nil && !handshake[args[0]] {
			action = hook(args)
		}
		if action.DropRequest {
			c.deafen()
			continue
		}
		alive := c.execute(args, action)
		if !alive {
			return
		}
	}
}

// next waits for a request; nil means that the connection is over.
func (c *conn) next() (args []string, hook func([]string) Action) {
	n := c.node
	for {
		n.mu.Lock()
		if len(c.requests) > 0 && !c.deaf {
			args = c.requests[0]
			c.requests = c.requests[1:]
			hook = n.faults.onRequest
			n.mu.Unlock()
			return args, hook
		}
		if c.broken || c.closed {
			delete(n.conns, c)
			n.mu.Unlock()
			return nil, nil
		}
		wake := c.wake
		n.mu.Unlock()
		<-wake
	}
}

func (c *conn) deafen() {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.deaf = true
}

// execute waits until the request may execute, and executes it. It reports
// whether the connection still stands.
func (c *conn) execute(args []string, action Action) bool {
	n := c.node
	locked := c.await(action.Delay)
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

// answer sends the reply to a request.
func (c *conn) answer(args []string, data []byte, action Action) bool {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.broken {
		return false
	}
	if n.faults.dropReplies > 0 && !handshake[args[0]] {
		n.faults.dropReplies--
		c.breakLocked()
		return false
	}
	if action.DropReply {
		c.muted = true
	}
	if !c.muted {
		c.replies = append(c.replies, reply{data, time.Now(), action.ReplyDelay})
		c.wakeLocked()
	}
	if c.peer.Closed() { // QUIT
		c.breakLocked()
		return false
	}
	return true
}

// await waits until a request that takes delay longer than others may execute,
// and takes exec. It reports false, without exec, if the connection is broken.
func (c *conn) await(delay time.Duration) bool {
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
		wake := c.wake
		if n.faults.hung {
			wait = 0
		}
		n.mu.Unlock()
		n.exec.Unlock()
		pause(wake, wait)
	}
}

// dispatch executes a request. It must be called with exec held.
func (c *conn) dispatch(args []string) {
	handled := c.subscribe(args)
	if !handled {
		c.node.dispatch(c.peer, args)
	}
}

// pause waits for wake, and at most d if d is positive.
func pause(wake <-chan struct{}, d time.Duration) {
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

// Write hands requests over. Like a socket it succeeds while the node hangs.
func (c *conn) Write(p []byte) (int, error) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case c.closed:
		return 0, c.opError("write", net.ErrClosed)
	case c.broken:
		return 0, c.opError("write", syscall.EPIPE)
	case expired(c.writeDeadline):
		return 0, c.opError("write", os.ErrDeadlineExceeded)
	}
	c.partial = append(c.partial, p...)
	if err := c.parseLocked(); err != nil {
		c.breakLocked()
		return 0, c.opError("write", err)
	}
	c.wakeLocked()
	return len(p), nil
}

// parseLocked moves the complete requests from partial to requests.
func (c *conn) parseLocked() error {
	for {
		args, size, err := parseRequest(c.partial)
		if size == 0 || err != nil {
			return err
		}
		c.partial = c.partial[size:]
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
		pause(wake, wait)
	}
}

// tryRead reads what has arrived. A wake that is not nil means that nothing
// has, and that the next chance is when wake closes or a positive wait is over.
func (c *conn) tryRead(p []byte) (size int, wake <-chan struct{}, wait time.Duration, err error) {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return 0, nil, 0, c.opError("read", net.ErrClosed)
	}
	if expired(c.readDeadline) {
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
				c.replies = c.replies[1:]
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
	return 0, c.wake, wait, nil
}

// Close closes the client's end. Requests written before still execute, as
// those in flight to a server would.
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

// expired reports whether there is a deadline, and it has passed.
func expired(deadline time.Time) bool {
	return !deadline.IsZero() && !deadline.After(time.Now())
}

func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadlines(&t, nil) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }
func (c *conn) SetDeadline(t time.Time) error      { return c.setDeadlines(&t, &t) }

func (c *conn) setDeadlines(read, write *time.Time) error {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	if read != nil {
		c.readDeadline = *read
		c.wakeLocked() // a pending Read has to look at its deadline again
	}
	if write != nil {
		c.writeDeadline = *write
	}
	return nil
}

func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Addr: c.RemoteAddr(), Err: err}
}

// nodeAddr is the address of a node: its name.
type nodeAddr string

func (nodeAddr) Network() string  { return "memory" }
func (a nodeAddr) String() string { return string(a) }

func (c *conn) LocalAddr() net.Addr  { return nodeAddr("client") }
func (c *conn) RemoteAddr() net.Addr { return nodeAddr(c.node.name) }

// SyscallConn lets a client's pool see that an idle connection is broken, as
// it does with sockets, before it sends a command into it.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return health{c}, nil }

// health answers the only question a pool asks a raw connection, without a
// descriptor to ask it of.
type health struct{ *conn }

func (h health) Read(func(fd uintptr) bool) error {
	h.node.mu.Lock()
	defer h.node.mu.Unlock()
	if h.broken {
		return io.EOF
	}
	return nil
}

func (health) Write(func(fd uintptr) bool) error { return nil }
func (health) Control(func(fd uintptr)) error    { return nil }
