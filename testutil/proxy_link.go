package testutil

import (
	"net"
	"sync"
	"time"
)

// link is a proxied connection.
type link struct {
	proxy  *Proxy
	ends   [2]net.Conn // by the direction in which they receive
	once   sync.Once
	closed chan struct{}

	// guarded by proxy.mu
	halfClosed [2]bool
	dropReply  bool // close the link at the next byte from the server
}

func (l *link) receiver(dir Direction) net.Conn { return l.ends[dir] }
func (l *link) sender(dir Direction) net.Conn   { return l.ends[1-dir] }

// close closes both ends. It may be called with proxy.mu held.
func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		for _, c := range l.ends {
			_ = c.Close()
		}
	})
}

// pump passes on the bytes of one direction, until the end of its stream.
func (l *link) pump(dir Direction) {
	buf := make([]byte, 32<<10)
	for {
		size, err := l.sender(dir).Read(buf)
		if size > 0 {
			l.deliver(dir, buf[:size])
		}
		if err != nil {
			l.deliverEnd(dir)
			return
		}
	}
}

// deliver passes on bytes after the delay, unless they are swallowed or the link closes first.
func (l *link) deliver(dir Direction, sent []byte) {
	open := l.waitForDelay(dir)
	if !open {
		return
	}

	swallowed := l.swallow(dir, true)
	if swallowed {
		return
	}
	if l.isCut() {
		l.close()
		return
	}
	if _, err := l.receiver(dir).Write(l.mangled(dir, sent)); err != nil {
		l.close()
	}
}

// deliverEnd passes on the end of the stream, unless it is swallowed.
func (l *link) deliverEnd(dir Direction) {
	swallowed := l.swallow(dir, false)
	if !swallowed {
		closeWrite(l.receiver(dir))
	}
}

// isCut reports whether a piece of bytes closes the link.
func (l *link) isCut() bool {
	l.proxy.mu.Lock()
	cuts := l.proxy.cutIf
	l.proxy.mu.Unlock()
	return cuts != nil && cuts()
}

// mangled returns the bytes to pass on in place of sent.
func (l *link) mangled(dir Direction, sent []byte) []byte {
	l.proxy.mu.Lock()
	by := l.proxy.mangle[dir]
	l.proxy.mu.Unlock()
	if by == nil {
		return sent
	}
	return by(sent)
}

// waitForDelay waits until the delay of the direction has passed since the call, and reports whether the link is still
// open. The delay may change during the wait.
func (l *link) waitForDelay(dir Direction) bool {
	p := l.proxy
	began := time.Now()
	for {
		p.mu.Lock()
		wait := time.Until(began.Add(p.delay[dir]))
		changed := p.changed
		p.mu.Unlock()
		if wait <= 0 {
			return true
		}

		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-l.closed:
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// swallow reports whether bytes, or the end of the stream if hasBytes is false, must not be passed on. It counts what a
// black hole or a half-closed direction swallows, and closes the link at a reply that must be dropped.
func (l *link) swallow(dir Direction, hasBytes bool) bool {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.blackHole[dir] || l.halfClosed[dir] {
		p.swallowed[dir]++
		return true
	}

	if !hasBytes {
		return false
	}

	switch {
	case dir == ToServer && p.dropNext:
		// The request passes; the reply will not.
		p.dropNext = false
		l.dropReply = true
	case dir == ToClient && l.dropReply:
		l.close()
		return true
	}

	return false
}
