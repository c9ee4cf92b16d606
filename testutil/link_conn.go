package testutil

import (
	"net"
	"os"
	"syscall"
	"time"
)

// linkConn is the client's end of a connection through a [Link]. Everything but
// link, inner and addr is guarded by link.mu.
type linkConn struct {
	link  *Link
	inner net.Conn // nil: it was dialled while nothing came through
	addr  nodeAddr

	cut          bool // nothing comes through any more
	isReset      bool
	closed       bool
	wake         chan struct{} // closed and replaced when a Read has to look again
	readDeadline time.Time
}

var _ syscall.Conn = (*linkConn)(nil)

// connect makes the client's end. The Link may have been cut or killed since it let the client dial.
func (k *Link) connect(inner net.Conn, addr string) *linkConn {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := &linkConn{link: k, inner: inner, addr: nodeAddr(addr), cut: k.cut || k.killed, wake: make(chan struct{})}
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
	c.wakeLocked()
	if c.inner != nil {
		_ = c.inner.Close()
	}
}

func (c *linkConn) wakeLocked() {
	close(c.wake)
	c.wake = make(chan struct{})
}

// Read reads what the server sends. What it sends once the connection is cut is thrown away, its end too.
func (c *linkConn) Read(p []byte) (int, error) {
	for {
		silent, wake, deadline, over := c.state()
		if over != nil {
			return 0, over
		}
		if !silent {
			size, err := c.inner.Read(p)
			silent, _, _, over = c.state()
			usable := over == nil && !silent
			if usable {
				return size, err
			}
			continue
		}
		if expired(deadline) {
			return 0, linkError("read", c.addr, os.ErrDeadlineExceeded)
		}
		var wait time.Duration
		if !deadline.IsZero() {
			wait = time.Until(deadline)
		}
		pause(wake, wait)
	}
}

// state is what there is to a Read: nothing until wake is closed or the deadline has come, an error, or what the server
// sends.
func (c *linkConn) state() (silent bool, wake <-chan struct{}, deadline time.Time, over error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	switch {
	case c.closed:
		over = linkError("read", c.addr, net.ErrClosed)
	case c.isReset:
		over = resetBy("read", c.addr)
	}
	return c.cut, c.wake, c.readDeadline, over
}

// Write holds the lock while it writes, so that nothing is sent that a switch forbids which has returned.
func (c *linkConn) Write(p []byte) (int, error) {
	c.link.mu.Lock()
	switch {
	case c.closed:
		c.link.mu.Unlock()
		return 0, linkError("write", c.addr, net.ErrClosed)
	case c.isReset:
		c.link.mu.Unlock()
		time.Sleep(time.Millisecond) //nolint:forbidigo // in a bubble, a client that asks again at once would otherwise stop the clock
		return 0, resetBy("write", c.addr)
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
	c.wakeLocked()
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
	c.wakeLocked()
	if c.inner == nil || c.isReset {
		return nil
	}
	return c.inner.SetReadDeadline(t)
}

// SetWriteDeadline is of no interest to a connection that swallows what is written.
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

// SyscallConn lets a client's pool see that an idle connection was reset.
func (c *linkConn) SyscallConn() (syscall.RawConn, error) { return linkHealth{c}, nil }

// linkHealth answers as the connection below does, and for one that was cut or reset.
type linkHealth struct{ *linkConn }

func (h linkHealth) Read(f func(fd uintptr) bool) error {
	silent, _, _, over := h.state()
	if over != nil || silent {
		return over
	}
	sc, ok := h.inner.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(f)
}

func (linkHealth) Write(func(fd uintptr) bool) error { return nil }
func (linkHealth) Control(func(fd uintptr)) error    { return nil }

func resetBy(op string, addr nodeAddr) error { return linkError(op, addr, syscall.ECONNRESET) }

func linkError(op string, addr nodeAddr, err error) error {
	return &net.OpError{Op: op, Net: "link", Addr: addr, Err: err}
}
