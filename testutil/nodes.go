package testutil

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
)

// Nodes are independent Redis masters that other processes can reach, for
// demos and tests of several processes.
type Nodes struct {
	Addrs []string // host:port
	Kind  string   // what they are, for people

	faults []faulty
	stops  []func()
}

// faulty is what can happen to a node.
type faulty interface {
	Kill()
	Pause() error
	Resume() error
	Restart() error
	RestartEmpty() error
	Flush() error
}

// embedded makes an embedded node look like a process.
type embedded struct{ *Node }

func (n embedded) Kill() { n.Down() }

func (n embedded) Pause() error {
	n.Hang()
	return nil
}

func (n embedded) Resume() error {
	n.Up()
	return nil
}

func (n embedded) Restart() error {
	n.Node.Restart()
	n.Up()
	return nil
}

func (n embedded) RestartEmpty() error {
	n.Node.RestartEmpty()
	n.Up()
	return nil
}

func (n embedded) Flush() error {
	n.Node.Flush()
	return nil
}

// serverNode makes a process a node.
type serverNode struct{ *Server }

func (s serverNode) Flush() error { return s.admin().FlushAll(context.Background()).Err() } //nolint:forbidigo // bounded by the client's timeouts

// StartNodes starts n nodes: redis-server processes where there is a
// redis-server, embedded ones otherwise. The caller must Close them. extraArgs
// are for processes, as in [StartServer].
func StartNodes(n int, extraArgs ...string) (*Nodes, error) {
	start := func() (string, faulty, func(), error) { return startServer(extraArgs) }
	kind := "redis-server processes"
	if !ServerAvailable() {
		start = startListening
		kind = "embedded, because redis-server is not on PATH"
	}
	ns := &Nodes{Kind: kind}
	for i := range n {
		addr, node, stop, err := start()
		if err != nil {
			ns.Close()
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		ns.Addrs = append(ns.Addrs, addr)
		ns.faults = append(ns.faults, node)
		ns.stops = append(ns.stops, stop)
	}
	return ns, nil
}

func startServer(extraArgs []string) (addr string, node faulty, stop func(), err error) {
	s, err := StartServer("", extraArgs...) // its directory goes with it
	if err != nil {
		return "", nil, nil, err
	}
	return s.Addr(), serverNode{s}, s.Close, nil
}

func startListening() (addr string, node faulty, stop func(), err error) {
	n := StartNode()
	addr, err = n.Listen()
	if err != nil {
		n.Close()
		return "", nil, nil, err
	}
	return addr, embedded{n}, n.Close, nil
}

// URLs returns the addresses as core.Open takes them.
func (ns *Nodes) URLs() []string {
	urls := slices.Clone(ns.Addrs)
	for i, addr := range urls {
		urls[i] = "redis://" + addr
	}
	return urls
}

// Kill ends a node without warning. Until it is restarted nobody can reach it.
func (ns *Nodes) Kill(i int) { ns.faults[i].Kill() }

// Pause has a node answer nothing until it is resumed or restarted: connections stay open. An error means that it is
// dead, or that the platform cannot pause processes.
func (ns *Nodes) Pause(i int) error { return ns.faults[i].Pause() }

// Resume has a paused node go on with what it was sent meanwhile.
func (ns *Nodes) Resume(i int) error { return ns.faults[i].Resume() }

// Restart restarts a node, which keeps its address. Embedded nodes keep their data, processes do where the arguments
// given to StartNodes turn persistence on. A node that was killed or paused runs again.
func (ns *Nodes) Restart(i int) error { return ns.faults[i].Restart() }

// Flush removes the data of a node, which goes on running.
func (ns *Nodes) Flush(i int) error { return ns.faults[i].Flush() }

// RestartEmpty restarts a node, which keeps its address and loses its memory. A node that was killed runs again.
func (ns *Nodes) RestartEmpty(i int) error { return ns.faults[i].RestartEmpty() }

// Close ends the nodes.
func (ns *Nodes) Close() {
	for _, stop := range ns.stops {
		stop()
	}
	ns.stops = nil
}

// Listen lets other processes reach the node, at the address returned, until
// it is closed. What its switches do to connections they do to these as well.
func (n *Node) Listen() (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	closed := n.closed
	n.listeners = append(n.listeners, l)
	if !closed {
		n.work.Add(1)
	}
	n.mu.Unlock()
	if closed {
		_ = l.Close()
		return "", net.ErrClosed
	}
	go func() {
		defer n.work.Done()
		n.accept(l)
	}()
	return l.Addr().String(), nil
}

// accept connects those that dial l to the node, until l is closed.
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
		go pass(inside, outside)
		go pass(outside, inside)
	}
}

// pass copies until either end hangs up, and then hangs up on both.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
