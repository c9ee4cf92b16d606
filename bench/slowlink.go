package main

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A slowLink passes connections on to a server, and everything in either direction later by the same delay. Unlike
// testutil.Proxy it goes on reading meanwhile, as a long line does: what is sent in many pieces is not slowed down
// any further.
type slowLink struct {
	target   string
	delay    time.Duration
	listener net.Listener
	work     sync.WaitGroup
	running  atomic.Int32 // goroutines

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// A parcel is on its way to a connection.
type parcel struct {
	data []byte
	due  time.Time
}

func startSlowLink(target string, delay time.Duration) (*slowLink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("slow link to %s: %w", target, err)
	}
	l := &slowLink{target: target, delay: delay, listener: listener}
	l.run(l.accept)
	return l, nil
}

func (l *slowLink) run(f func()) {
	l.running.Add(1)
	l.work.Go(func() {
		defer l.running.Add(-1)
		f()
	})
}

func (l *slowLink) addr() string { return l.listener.Addr().String() }

// close closes all connections and waits until nothing of the link runs.
func (l *slowLink) close() error {
	err := l.listener.Close()
	l.mu.Lock()
	l.closed = true
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.work.Wait()
	return err
}

func (l *slowLink) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, client, server)
		if l.closed {
			_ = client.Close()
			_ = server.Close()
		}
		l.mu.Unlock()
		l.pass(client, server)
		l.pass(server, client)
	}
}

// pass sends on what comes from one connection to the other.
func (l *slowLink) pass(from, to net.Conn) {
	way := make(chan parcel, 1024)
	l.run(func() {
		defer close(way)
		for {
			buf := make([]byte, 16<<10)
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			way <- parcel{buf[:n], time.Now().Add(l.delay)}
		}
	})
	l.run(func() {
		defer to.Close()
		s, err := newSleeper()
		if err == nil {
			defer s.close()
		}
		for p := range way {
			if err == nil {
				s.sleep(time.Until(p.due))
				_, err = to.Write(p.data)
			}
			if err != nil {
				_ = from.Close() // ends the reader; what it has read is dropped
			}
		}
	})
}
