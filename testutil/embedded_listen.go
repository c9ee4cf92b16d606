package testutil

import (
	"context"
	"io"
	"net"
)

// Listen lets other processes reach the node, at the address returned, until
// the node is closed. Its switches also affect these connections.
func (n *Node) Listen() (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}

	// Close waits for the workers, so none may be added after it has begun.
	n.mu.Lock()
	closed := n.closed
	n.listeners = append(n.listeners, l)
	if !closed {
		n.workers.Add(1)
	}

	n.mu.Unlock()
	if closed {
		_ = l.Close()
		return "", net.ErrClosed
	}

	go func() {
		defer n.workers.Done()
		n.accept(l)
	}()
	return l.Addr().String(), nil
}

// accept connects the clients of l to the node, until l is closed.
func (n *Node) accept(l net.Listener) {
	for {
		outside, err := l.Accept()
		if err != nil {
			return // closed
		}

		inside, err := n.Dial(context.Background(), "", "") //nolint:forbidigo // ends with the node
		if err != nil {                                     // the node is down
			_ = outside.Close()
			continue
		}
		go relay(inside, outside)
		go relay(outside, inside)
	}
}

// relay copies until either end hangs up, and then closes both.
func relay(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
