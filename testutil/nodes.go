package testutil

import (
	"context"
	"fmt"
	"slices"
)

// Nodes are independent Redis masters that other processes can reach, for
// demos and tests of several processes.
type Nodes struct {
	Addrs []string // host:port
	Kind  string   // a description, for people

	nodes   []faultyNode
	closers []func()
}

// A faultyNode is a node with the faults that Nodes offers.
type faultyNode interface {
	Kill()
	Pause() error
	Resume() error
	Restart() error
	RestartEmpty() error
	Flush() error
}

// embeddedNode gives an embedded node the faults of a process.
type embeddedNode struct{ *Node }

func (n embeddedNode) Kill() { n.Down() }

func (n embeddedNode) Pause() error {
	n.Hang()
	return nil
}

func (n embeddedNode) Resume() error {
	n.Up()
	return nil
}

func (n embeddedNode) Restart() error {
	n.Node.Restart()
	n.Up()
	return nil
}

func (n embeddedNode) RestartEmpty() error {
	n.Node.RestartEmpty()
	n.Up()
	return nil
}

func (n embeddedNode) Flush() error {
	n.Node.Flush()
	return nil
}

// serverNode adds to a process the fault that it lacks.
type serverNode struct{ *Server }

func (s serverNode) Flush() error {
	return s.admin().FlushAll(context.Background()).Err() //nolint:forbidigo // bounded by the client's timeouts
}

// StartNodes starts n nodes: redis-server processes if redis-server is on PATH,
// embedded ones otherwise. The caller must Close them. extraArgs are passed to
// the processes, as in [StartServer].
func StartNodes(n int, extraArgs ...string) (*Nodes, error) {
	start := func() (string, faultyNode, func(), error) { return startServerNode(extraArgs) }
	kind := "redis-server processes"
	if !ServerAvailable() {
		start = startEmbeddedNode
		kind = "embedded, because redis-server is not on PATH"
	}

	ns := &Nodes{Kind: kind}
	for i := range n {
		addr, node, closer, err := start()
		if err != nil {
			ns.Close()
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		ns.Addrs = append(ns.Addrs, addr)
		ns.nodes = append(ns.nodes, node)
		ns.closers = append(ns.closers, closer)
	}

	return ns, nil
}

func startServerNode(extraArgs []string) (addr string, node faultyNode, closer func(), err error) {
	s, err := StartServer("", extraArgs...) // Close removes its directory
	if err != nil {
		return "", nil, nil, err
	}
	return s.Addr(), serverNode{s}, s.Close, nil
}

func startEmbeddedNode() (addr string, node faultyNode, closer func(), err error) {
	n := StartNode()
	addr, err = n.Listen()
	if err != nil {
		n.Close()
		return "", nil, nil, err
	}
	return addr, embeddedNode{n}, n.Close, nil
}

// URLs returns the addresses in the form that core.Open takes.
func (ns *Nodes) URLs() []string {
	urls := slices.Clone(ns.Addrs)
	for i, addr := range urls {
		urls[i] = "redis://" + addr
	}
	return urls
}

// Kill ends a node without warning. Clients cannot reach it until it is restarted.
func (ns *Nodes) Kill(i int) { ns.nodes[i].Kill() }

// Pause makes a node answer nothing until it is resumed or restarted; connections stay open. An error means that the
// node is dead, or that the platform cannot pause processes.
func (ns *Nodes) Pause(i int) error { return ns.nodes[i].Pause() }

// Resume makes a paused node continue, with the requests that it received while paused.
func (ns *Nodes) Resume(i int) error { return ns.nodes[i].Resume() }

// Restart restarts a node, which keeps its address. Embedded nodes keep their data; processes keep it if the arguments
// given to StartNodes turn persistence on. A node that was killed or paused runs again.
func (ns *Nodes) Restart(i int) error { return ns.nodes[i].Restart() }

// Flush removes the data of a node, which continues to run.
func (ns *Nodes) Flush(i int) error { return ns.nodes[i].Flush() }

// RestartEmpty restarts a node, which keeps its address and loses its memory. A node that was killed runs again.
func (ns *Nodes) RestartEmpty(i int) error { return ns.nodes[i].RestartEmpty() }

// Close ends the nodes.
func (ns *Nodes) Close() {
	for _, closer := range ns.closers {
		closer()
	}
	ns.closers = nil
}
