package testutil

import (
	"net"
	"os"
	"syscall"
	"time"
)

// linkConn is the client's end of a connection through a [Link]. link.mu guards
// all fields except link, inner and addr.
type linkConn struct {
	link  *Link
	inner net.Conn // nil if the Link was cut or killed when the client dialed
	addr  nodeAddr

	cut          bool // nothing passes any more
	isReset      bool
	closed       bool
	wake         bell // rings when a Read must look again
	readDeadline time.Time
}

var _ syscall.Conn = (*linkConn)(nil)

// connect returns the client's end of a connection. It looks at the switches again, because the Link may have been cut
// or killed while the client dialed.
func (k *Link) connect(inner net.Conn, addr string) *linkConn {
	k.mu.Lock()
	defer k.mu.Unlock()

	c := &linkConn{
		link:  k,
		inner: inner,
		addr:  nodeAddr(addr),
		cut:   k.cut || k.killed,
	}
	if k.killed {
		c.resetLocked()
		return c
	}

	if k.conns == nil {
		k.conns = map[*linkConn]struct{}{}
	}

	k.conns[c] = struct{}{}
	return c
}

// resetLocked ends the connection from the network's side.
func (c *linkConn) resetLocked() {
	c.isReset = true
	delete(c.link.conns, c)
	c.wake.ring()
	if c.inner != nil {
		_ = c.inner.Close()
	}
}

// Read reads from the server. Once the connection is cut, it discards bytes and errors of the server, including the end
// of the stream.
func (c *linkConn) Read(p []byte) (int, error) {
	for {
		silent, wake, deadline, over := c.state()
		if over != nil {
			return 0, over
		}

		if !silent {
			size, err := c.inner.Read(p)

			// The connection may have been cut during the read.
			silent, _, _, over = c.state()
			usable := over == nil && !silent
			if usable {
				return size, err
			}
			continue
		}

		if hasPassed(deadline) {
			return 0, linkError("read", c.addr, os.ErrDeadlineExceeded)
		}
		var wait time.Duration
		if !deadline.IsZero() {
			wait = time.Until(deadline)
		}
		waitFor(wake, wait)
	}
}

// state returns how a Read must proceed: fail with over if it is not nil; wait for wake or the deadline if silent is
// true; and otherwise read from the server.
func (c *linkConn) state() (silent bool, wake <-chan struct{}, deadline time.Time, over error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()

	switch {
	case c.closed:
		over = linkError("read", c.addr, net.ErrClosed)
	case c.isReset:
		over = resetError("read", c.addr)
	}

	if c.cut {
		wake = c.wake.next()
	}
	return c.cut, wake, c.readDeadline, over
}

// Write holds link.mu while it writes, so that nothing is sent after a switch that forbids it has returned.
func (c *linkConn) Write(p []byte) (int, error) {
	c.link.mu.Lock()
	switch {
	case c.closed:
		c.link.mu.Unlock()
		return 0, linkError("write", c.addr, net.ErrClosed)

	case c.isReset:
		c.link.mu.Unlock()
		time.Sleep(time.Millisecond) //nolint:forbidigo // a client that retries at once would stop a bubble's clock
		return 0, resetError("write", c.addr)
	}

	defer c.link.mu.Unlock()
	if c.cut {
		return len(p), nil
	}

	return c.inner.Write(p)
}

func (c *linkConn) Close() error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()

	if c.closed {
		return linkError("close", c.addr, net.ErrClosed)
	}

	c.closed = true
	delete(c.link.conns, c)
	c.wake.ring()
	if c.inner == nil || c.isReset {
		return nil
	}

	return c.inner.Close()
}

func (c *linkConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *linkConn) SetReadDeadline(t time.Time) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()

	c.readDeadline = t
	c.wake.ring()
	if c.inner == nil || c.isReset {
		return nil
	}
	return c.inner.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline of the connection to the server. While the Link swallows writes, they return at
// once.
func (c *linkConn) SetWriteDeadline(t time.Time) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.inner == nil || c.isReset {
		return nil
	}
	return c.inner.SetWriteDeadline(t)
}

func (c *linkConn) LocalAddr() net.Addr {
	if c.inner == nil {
		return nodeAddr("client")
	}
	return c.inner.LocalAddr()
}

func (c *linkConn) RemoteAddr() net.Addr {
	if c.inner == nil {
		return c.addr
	}
	return c.inner.RemoteAddr()
}

// SyscallConn lets a client's pool check whether an idle connection was reset.
func (c *linkConn) SyscallConn() (syscall.RawConn, error) { return linkRawConn{c}, nil }

// linkRawConn is the syscall.RawConn of the connection to the server. Its Read returns an error if the connection was
// closed or reset, and nil if it was cut.
type linkRawConn struct{ *linkConn }

func (r linkRawConn) Read(f func(fd uintptr) bool) error {
	silent, _, _, over := r.state()
	if over != nil || silent {
		return over
	}

	sc, ok := r.inner.(syscall.Conn)
	if !ok {
		return nil
	}

	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}

	return raw.Read(f)
}

func (linkRawConn) Write(func(fd uintptr) bool) error { return nil }
func (linkRawConn) Control(func(fd uintptr)) error    { return nil }

func resetError(op string, addr nodeAddr) error { return linkError(op, addr, syscall.ECONNRESET) }

func linkError(op string, addr nodeAddr, err error) error {
	return &net.OpError{Op: op, Net: "link", Addr: addr, Err: err}
}
