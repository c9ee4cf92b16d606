package main

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/lockkit/lockkit/testutil"
)

// Nodes are the lock nodes, at addresses that other processes can reach.
type nodes struct {
	urls  []string
	kind  string
	stops []func()
}

func startNodes(n int) (*nodes, error) {
	ns := &nodes{kind: "redis-server processes"}
	if !testutil.ServerAvailable() {
		ns.kind = "embedded, because redis-server is not on PATH"
	}
	for i := range n {
		addr, stop, err := startNode()
		if err != nil {
			ns.close()
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		ns.urls = append(ns.urls, "redis://"+addr)
		ns.stops = append(ns.stops, stop)
	}
	return ns, nil
}

func startNode() (addr string, stop func(), err error) {
	if testutil.ServerAvailable() {
		server, err := testutil.StartServer("") // its directory goes with it
		if err != nil {
			return "", nil, err
		}
		return server.Addr(), server.Close, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	node := testutil.NewNode()
	go serveNode(listener, node)
	return listener.Addr().String(), func() {
		listener.Close()
		node.Close()
	}, nil
}

// serveNode gives an embedded node, which knows connections in memory only, a port. It ends with the listener,
// and connections with the node.
func serveNode(listener net.Listener, node *testutil.Node) {
	for {
		outside, err := listener.Accept()
		if err != nil {
			return
		}
		inside, err := node.Dial(context.Background(), "", "")
		if err != nil {
			outside.Close()
			continue
		}
		pass := func(to, from net.Conn) {
			io.Copy(to, from) // either end may hang up: both are closed then
			to.Close()
			from.Close()
		}
		go pass(inside, outside)
		go pass(outside, inside)
	}
}

func (ns *nodes) close() {
	for _, stop := range ns.stops {
		stop()
	}
}
