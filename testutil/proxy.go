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
	ToServer Direction = iota // what clients send
	ToClient                  // what the server answers
)

// Proxy passes TCP connections on to a target and damages them on demand. Its
// methods are safe for concurrent use, and act on established connections too
// unless they say otherwise. It knows bytes only, not Redis: the greeting of a
// new connection is a request to it like any other.
type Proxy struct {
	listener net.Listener
	stop     context.CancelFunc
	work     sync.WaitGroup // the acceptor and all links

	mu        sync.Mutex
	target    string
	links     map[*link]struct{}
	mangle    [2]func(sent []byte) []byte // nil = what is sent is passed on as it is
	delay     [2]time.Duration
	blackHole [2]bool
	swallowed [2]int // how often something was
	dropNext  bool
	refuse    bool
	changed   chan struct{} // closed and replaced when the above changes
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
// It does not connect to target before a client comes. The caller must Close it.
func StartProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("testutil: proxy for %s: %w", target, err)
	}
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // lives until Close
	p := &Proxy{
		listener: l, stop: stop,
		target: target, links: map[*link]struct{}{}, changed: make(chan struct{}),
	}
	p.work.Go(func() { p.accept(ctx) })
	return p, nil
}

// Addr is the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay makes everything sent in a direction wait d before it is passed on;
// 0 ends it, and lets go what waits.
func (p *Proxy) Delay(dir Direction, d time.Duration) {
	p.change(func() { p.delay[dir] = d })
}

// BlackHole swallows everything sent in a direction while on, the end of the
// stream included. The connection stays open. What was swallowed is lost.
func (p *Proxy) BlackHole(dir Direction, on bool) {
	p.change(func() { p.blackHole[dir] = on })
}

// HalfClose ends the stream in one direction of the connections that are open
// now: the receiver sees its end, the sender goes on into nowhere. The other
// direction still works.
func (p *Proxy) HalfClose(dir Direction) {
	p.change(func() {
		for l := range p.links {
			l.halfClosed[dir] = true
			closeWrite(l.receiver(dir))
		}
	})
}

// DropNextReply lets the next request through, on whichever connection it
// comes, and closes that connection at the first byte the server answers. So
// the request has been executed, and no byte of the reply arrives.
func (p *Proxy) DropNextReply() {
	p.change(func() { p.dropNext = true })
}

// Mangle passes on what by makes of everything that is sent in a direction, in place of it; nil ends that. by gets the bytes
// in pieces as they come, on one goroutine for each connection, and may keep none of them. What it returns may be empty.
func (p *Proxy) Mangle(dir Direction, by func(sent []byte) []byte) {
	p.change(func() { p.mangle[dir] = by })
}

// Move makes target (host:port) what new connections lead to, as a name does that moves to another server. Established ones
// stay where they are.
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

// Close stops listening, closes all connections and waits until nothing of the
// proxy runs. Closing again does nothing.
func (p *Proxy) Close() {
	p.stop()
	_ = p.listener.Close()
	p.Cut()
	p.work.Wait()
}

func (p *Proxy) change(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	close(p.changed)
	p.changed = make(chan struct{})
}

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

// connect makes a link to the target for client and serves it to its end.
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
	if ctx.Err() != nil { // Close has not seen the link
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

// reset closes a connection so that its peer gets an error, not an end.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func closeWrite(c net.Conn) { _ = c.(*net.TCPConn).CloseWrite() }
