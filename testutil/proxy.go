package testutil

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is a direction of the bytes through a [Proxy].
type Direction int

const (
	ToServer Direction = iota // bytes sent by clients
	ToClient                  // bytes sent by the server
)

// Proxy passes TCP connections on to a target and damages them on demand. Its
// methods are safe for concurrent use, and act on established connections too
// unless they say otherwise. It knows bytes only, not Redis: it treats the
// greeting of a new connection like any other request.
type Proxy struct {
	listener net.Listener
	stop     context.CancelFunc
	work     sync.WaitGroup // accept, and one connect per link

	// mu guards the fields below, and those of the links that say so.
	mu        sync.Mutex
	target    string
	links     map[*link]struct{}
	mangle    [2]func(sent []byte) []byte // nil: bytes are passed on unchanged
	cutIf     func() bool                 // nil: pieces are passed on
	delay     [2]time.Duration
	blackHole [2]bool
	swallowed [2]int // the number of reads and ends of streams that were swallowed
	dropNext  bool
	refuse    bool
	changed   chan struct{} // closed and replaced when one of the above changes
}

// NewProxy is [StartProxy] for tests: the proxy is closed when the test ends.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := StartProxy(target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// StartProxy starts a proxy for target (host:port) on a free port of 127.0.0.1.
// It connects to target only when a client connects. The caller must Close it.
func StartProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("testutil: proxy for %s: %w", target, err)
	}

	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // lives until Close
	p := &Proxy{
		listener: l,
		stop:     stop,
		target:   target,
		links:    map[*link]struct{}{},
		changed:  make(chan struct{}),
	}

	p.work.Go(func() { p.accept(ctx) })
	return p, nil
}

// Addr returns the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay makes everything sent in a direction wait d before it is passed on.
// Delay(dir, 0) ends this, and passes on at once everything that waits.
func (p *Proxy) Delay(dir Direction, d time.Duration) {
	p.change(func() { p.delay[dir] = d })
}

// BlackHole swallows everything sent in a direction while on, including the end
// of the stream. The connection stays open. Swallowed bytes are lost.
func (p *Proxy) BlackHole(dir Direction, on bool) {
	p.change(func() { p.blackHole[dir] = on })
}

// HalfClose ends the stream in one direction of the connections that are open
// now: the receiver sees the end, and further bytes of the sender are lost. The
// other direction still works.
func (p *Proxy) HalfClose(dir Direction) {
	p.change(func() {
		for l := range p.links {
			l.halfClosed[dir] = true
			closeWrite(l.receiver(dir))
		}
	})
}

// DropNextReply passes on the next request, on any connection, and closes that
// connection at the first byte of the server's answer. So the request has been
// executed, and no byte of the reply arrives.
func (p *Proxy) DropNextReply() {
	p.change(func() { p.dropNext = true })
}

// Mangle passes everything that is sent in a direction through by, and passes on the result, which may be empty. by
// gets the bytes in pieces as they come, in one goroutine for each connection, and must not retain them. If by is nil,
// bytes are passed on unchanged again.
func (p *Proxy) Mangle(dir Direction, by func(sent []byte) []byte) {
	p.change(func() { p.mangle[dir] = by })
}

// CutIf asks cuts about each piece of bytes, in both directions, before it is passed on. If cuts returns true, the piece is
// lost and its connection is closed. cuts is called by several goroutines. If it is nil, pieces are passed on again.
func (p *Proxy) CutIf(cuts func() bool) {
	p.change(func() { p.cutIf = cuts })
}

// Move changes the target (host:port) of new connections, as if a DNS name moved to another server. Established
// connections stay where they are.
func (p *Proxy) Move(target string) {
	p.change(func() { p.target = target })
}

// Refuse resets new connections at once while on. Established ones stay.
func (p *Proxy) Refuse(on bool) {
	p.change(func() { p.refuse = on })
}

// Cut closes all connections that are open now.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Close stops listening, closes all connections and waits until the proxy's
// goroutines have ended. Further calls do nothing.
func (p *Proxy) Close() {
	p.stop()
	_ = p.listener.Close()
	p.Cut()
	p.work.Wait()
}

// change calls set with p.mu held, and wakes the links that wait for a change.
func (p *Proxy) change(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	close(p.changed)
	p.changed = make(chan struct{})
}

// accept serves clients until the listener is closed.
func (p *Proxy) accept(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}

		p.mu.Lock()
		refuse := p.refuse
		p.mu.Unlock()
		if refuse {
			reset(client)
			continue
		}
		p.work.Go(func() { p.connect(ctx, client) })
	}
}

// connect links client to the target, and passes bytes on until the link is closed.
func (p *Proxy) connect(ctx context.Context, client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()

	server, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		reset(client)
		return
	}

	l := &link{proxy: p, ends: [2]net.Conn{ToServer: server, ToClient: client}, closed: make(chan struct{})}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	if ctx.Err() != nil { // Close may have looked at the links before this one was added
		l.close()
	}

	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(ToServer) })
	pumps.Go(func() { l.pump(ToClient) })
	pumps.Wait()
	l.close()

	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// reset closes a connection so that its peer gets an error instead of the end of the stream.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func closeWrite(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() }
