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
	dropReply  bool
}

func (l *link) receiver(dir Direction) net.Conn { return l.ends[dir] }
func (l *link) sender(dir Direction) net.Conn   { return l.ends[1-dir] }

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		for _, c := range l.ends {
			_ = c.Close()
		}
	})
}

// pump passes on what is sent in one direction until its end.
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

// deliver passes on bytes, unless they are swallowed.
func (l *link) deliver(dir Direction, sent []byte) {
	open := l.hold(dir)
	if !open {
		return
	}
	swallowed := l.swallows(dir, true)
	if swallowed {
		return
	}
	if _, err := l.receiver(dir).Write(l.mangled(dir, sent)); err != nil {
		l.close()
	}
}

// deliverEnd passes on the end of the stream, unless it is swallowed.
func (l *link) deliverEnd(dir Direction) {
	swallowed := l.swallows(dir, false)
	if !swallowed {
		closeWrite(l.receiver(dir))
	}
}

// mangled is what is passed on in place of what was sent.
func (l *link) mangled(dir Direction, sent []byte) []byte {
	l.proxy.mu.Lock()
	by := l.proxy.mangle[dir]
	l.proxy.mu.Unlock()
	if by == nil {
		return sent
	}
	return by(sent)
}

// hold waits for the delay of the direction, and reports whether the link is
// still open then.
func (l *link) hold(dir Direction) bool {
	p := l.proxy
	came := time.Now()
	for {
		p.mu.Lock()
		wait := time.Until(came.Add(p.delay[dir]))
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

// swallows reports whether something that has come in a direction, bytes or
// the end, goes no further, and closes the link when it is a reply to drop.
func (l *link) swallows(dir Direction, bytes bool) bool {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blackHole[dir] || l.halfClosed[dir] {
		p.swallowed[dir]++
		return true
	}
	if !bytes {
		return false
	}
	switch {
	case dir == ToServer && p.dropNext:
		p.dropNext = false
		l.dropReply = true
	case dir == ToClient && l.dropReply:
		l.close()
		return true
	}
	return false
}
