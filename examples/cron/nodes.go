package main

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/lockkit/lockkit/testutil"
)

// nodes are independent Redis masters that other processes can reach.
type nodes struct {
	urls  []string
	kind  string
	stops []func()
}

// startNodes starts n nodes: processes if there is a redis-server, embedded ones otherwise.
func startNodes(n int) (*nodes, error) {
	ns := &nodes{kind: "redis-server processes"}
	start := ns.server
	if !testutil.ServerAvailable() {
		ns.kind = "embedded, because redis-server is not on PATH"
		start = ns.embedded
	}
	for i := range n {
		addr, err := start()
		if err != nil {
			ns.close()
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		ns.urls = append(ns.urls, "redis://"+addr)
	}
	return ns, nil
}

func (ns *nodes) close() {
	for _, stop := range ns.stops {
		stop()
	}
}

func (ns *nodes) server() (string, error) {
	server, err := testutil.StartServer("") // its directory goes with it
	if err != nil {
		return "", err
	}
	ns.stops = append(ns.stops, server.Close)
	return server.Addr(), nil
}

func (ns *nodes) embedded() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	node := testutil.NewNode()
	ns.stops = append(ns.stops, func() { listener.Close() }, node.Close)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go connect(conn, node)
		}
	}()
	return listener.Addr().String(), nil
}

// connect passes on what a connection and an embedded node have to say to each other.
func connect(conn net.Conn, node *testutil.Node) {
	defer conn.Close()
	inside, err := node.Dial(context.Background(), "", "")
	if err != nil {
		return
	}
	go func() {
		defer inside.Close()
		io.Copy(inside, conn)
	}()
	io.Copy(conn, inside)
}
