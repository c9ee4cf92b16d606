package testutil

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// echo is a server that answers each line with the same line, and counts the lines.
type echo struct {
	addr  string
	lines atomic.Int64
	ends  chan error // the error that ended each client's stream
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	e := &echo{addr: l.Addr().String(), ends: make(chan error, 100)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(c)
		}
	}()
	return e
}

func (e *echo) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			e.ends <- err
			return
		}
		e.lines.Add(1)
		_, _ = io.WriteString(c, line)
	}
}

// caller is a client of an echo through a proxy.
type caller struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// dial connects and makes one call, so that the connection is established.
func dial(t *testing.T, p *Proxy) *caller {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &caller{t, conn, bufio.NewReader(conn)}
	if err := c.call(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	return c
}

// call sends a line and reads the answer.
func (c *caller) call(timeout time.Duration) error {
	c.t.Helper()
	if _, err := io.WriteString(c, "line\n"); err != nil {
		return err
	}
	return c.answer(timeout)
}

func (c *caller) answer(timeout time.Duration) error {
	_ = c.SetReadDeadline(time.Now().Add(timeout))
	_, err := c.in.ReadString('\n')
	return err
}

const (
	plenty = 10 * time.Second
	little = 50 * time.Millisecond
)

func TestProxyDelay(t *testing.T) {
	for _, dir := range []Direction{ToServer, ToClient} {
		e := newEcho(t)
		p := NewProxy(t, e.addr)
		c := dial(t, p)
		p.Delay(dir, little)
		start := time.Now()
		if err := c.call(plenty); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < little {
			t.Errorf("direction %d: took %v", dir, took)
		}
		p.Delay(dir, time.Hour)
		if err := c.call(little); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("direction %d: %v, want a timeout", dir, err)
		}
		if dir == ToServer && e.lines.Load() != 2 {
			t.Errorf("the request was not delayed, but its reply")
		}
		if dir == ToClient {
			Await(t, "the request arrives at once", func() bool { return e.lines.Load() == 3 })
		}
		p.Delay(dir, 0)
		if err := c.answer(plenty); err != nil {
			t.Errorf("direction %d: ending the delay did not let go: %v", dir, err)
		}
	}
}

func TestProxyCloseEndsDelays(t *testing.T) {
	p := NewProxy(t, newEcho(t).addr)
	c := dial(t, p)
	p.Delay(ToServer, time.Hour)
	if err := c.call(little); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v, want a timeout", err)
	}
	p.Close()
	p.Close()
	if err := c.answer(plenty); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want an end", err)
	}
}

func TestProxyBlackHole(t *testing.T) {
	for dir, arrives := range map[Direction]int64{ToServer: 1, ToClient: 2} {
		e := newEcho(t)
		p := NewProxy(t, e.addr)
		c := dial(t, p)
		p.BlackHole(dir, true)
		if err := c.call(little); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("direction %d: %v, want a timeout", dir, err)
		}
		Await(t, "the line is swallowed", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.swallowed[dir] > 0
		})
		if got := e.lines.Load(); got != arrives {
			t.Errorf("direction %d: %d lines arrived, want %d", dir, got, arrives)
		}
		p.BlackHole(dir, false)
		if err := c.call(plenty); err != nil {
			t.Errorf("direction %d: the connection did not stay: %v", dir, err)
		}
		if got := e.lines.Load(); got != arrives+1 {
			t.Errorf("direction %d: %d lines arrived, want %d", dir, got, arrives+1)
		}
	}
}

func TestProxyHalfClose(t *testing.T) {
	t.Run("to client", func(t *testing.T) {
		e := newEcho(t)
		p := NewProxy(t, e.addr)
		c := dial(t, p)
		p.HalfClose(ToClient)
		if err := c.answer(plenty); err != io.EOF {
			t.Errorf("the client reads %v, want EOF", err)
		}
		if _, err := io.WriteString(c, "line\n"); err != nil {
			t.Error(err)
		}
		Await(t, "the other direction still works", func() bool { return e.lines.Load() == 2 })
	})
	t.Run("to server", func(t *testing.T) {
		e := newEcho(t)
		p := NewProxy(t, e.addr)
		dial(t, p)
		p.HalfClose(ToServer)
		if err := <-e.ends; err != io.EOF {
			t.Errorf("the server reads %v, want EOF", err)
		}
		dial(t, p) // new connections are whole
	})
}

func TestProxyDropNextReply(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c, other := dial(t, p), dial(t, p)
	p.DropNextReply()
	if err := c.call(plenty); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want an end", err)
	}
	if got := e.lines.Load(); got != 3 {
		t.Errorf("%d lines arrived, want 3", got)
	}
	if err := other.call(plenty); err != nil {
		t.Errorf("the request after the next: %v", err)
	}
}

func TestProxyCut(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c := dial(t, p)
	p.Cut()
	if err := c.answer(plenty); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the client reads %v, want an end", err)
	}
	<-e.ends
	dial(t, p)
}

func TestProxyMangle(t *testing.T) {
	for _, dir := range []Direction{ToServer, ToClient} {
		p := NewProxy(t, newEcho(t).addr)
		c := dial(t, p)
		answer := func() string {
			t.Helper()
			if _, err := io.WriteString(c, "line\n"); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(plenty))
			text, err := c.in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		p.Mangle(dir, bytes.ToUpper)
		if got := answer(); got != "LINE\n" {
			t.Errorf("direction %d: %q", dir, got)
		}
		p.Mangle(1-dir, func([]byte) []byte { return []byte("else\n") })
		if got := answer(); got != "else\n" && got != "ELSE\n" {
			t.Errorf("direction %d: %q", dir, got)
		}
		p.Mangle(dir, nil)
		p.Mangle(1-dir, nil)
		if got := answer(); got != "line\n" {
			t.Errorf("direction %d, mended: %q", dir, got)
		}
	}
}

func TestProxyCutIf(t *testing.T) {
	for _, dir := range []Direction{ToServer, ToClient} {
		echo := newEcho(t)
		p := NewProxy(t, echo.addr)
		c := dial(t, p)
		var asked atomic.Int64
		p.CutIf(func() bool { return asked.Add(1) == 1+int64(dir) }) // the request is asked about first, then its reply
		if err := c.call(plenty); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("direction %d: %v, want a closed connection", dir, err)
		}

		p.CutIf(nil)
		dial(t, p) // makes a call
		if got := asked.Load(); got != 1+int64(dir) {
			t.Errorf("direction %d: asked about %d pieces", dir, got)
		}
		if got := echo.lines.Load(); got != 2+int64(dir) {
			t.Errorf("direction %d: %d lines arrived", dir, got)
		}
	}
}

func TestProxyMove(t *testing.T) {
	before, after := newEcho(t), newEcho(t)
	p := NewProxy(t, before.addr)
	c := dial(t, p)
	p.Move(after.addr)
	if err := c.call(plenty); err != nil {
		t.Fatal(err)
	}
	dial(t, p)
	if got := [2]int64{before.lines.Load(), after.lines.Load()}; got != [2]int64{2, 1} {
		t.Errorf("%v lines arrived, want 2 over the connection that stood, and 1 over the new one", got)
	}
}

func TestProxyRefuse(t *testing.T) {
	p := NewProxy(t, newEcho(t).addr)
	c := dial(t, p)
	p.Refuse(true)
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer func() { _ = conn.Close() }()
		_ = conn.SetReadDeadline(time.Now().Add(plenty))
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection: %v", err)
	}
	if err := c.call(plenty); err != nil {
		t.Errorf("the established connection: %v", err)
	}
	p.Refuse(false)
	dial(t, p)
}

func TestProxyEndsWithItsEnds(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	_ = dial(t, p).Close()
	if err := <-e.ends; err != io.EOF {
		t.Errorf("the server reads %v, want EOF", err)
	}
	Await(t, "the link is forgotten", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.links) == 0
	})
}

func TestProxyWithoutTarget(t *testing.T) {
	p := NewProxy(t, "127.0.0.1:1")
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer func() { _ = conn.Close() }()
		_, err = conn.Read(make([]byte, 1))
	}
	if err == nil {
		t.Error("a connection to nowhere works")
	}
}
