package main

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/lockkit/lockkit/testutil"
)

// nodes are Redis masters that other processes can reach.
type nodes struct {
	addrs []string
	kind  string
	stop  []func()
}

// startNodes starts n nodes: processes if there is a redis-server, embedded ones otherwise.
func startNodes(n int) (*nodes, error) {
	ns := &nodes{kind: "redis-server processes"}
	if !testutil.ServerAvailable() {
		ns.kind = "embedded, because redis-server is not on PATH"
	}
	for i := range n {
		if err := ns.start(); err != nil {
			ns.close()
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
	}
	return ns, nil
}

func (ns *nodes) start() error {
	if testutil.ServerAvailable() {
		server, err := testutil.StartServer("") // its directory goes with it
		if err != nil {
			return err
		}
		ns.addrs, ns.stop = append(ns.addrs, server.Addr()), append(ns.stop, server.Close)
		return nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	node := testutil.NewNode()
	go serve(listener, node)
	ns.addrs, ns.stop = append(ns.addrs, listener.Addr().String()), append(ns.stop, func() { listener.Close(); node.Close() })
	return nil
}

// serve lets an embedded node, which lives in memory, be reached by TCP.
func serve(listener net.Listener, node *testutil.Node) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer client.Close()
			server, err := node.Dial(context.Background(), "", "")
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				io.Copy(server, client)
				server.Close()
			}()
			io.Copy(client, server)
		}()
	}
}

func (ns *nodes) close() {
	for _, stop := range ns.stop {
		stop()
	}
}
