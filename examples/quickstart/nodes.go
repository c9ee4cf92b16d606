package main

import (
	"fmt"

	"github.com/lockkit/lockkit/testutil"
	"github.com/redis/go-redis/v9"
)

// A node is one independent Redis master.
type node interface {
	Client() redis.UniversalClient
	Kill()
	RestartEmpty() error
	Close()
}

// embedded makes an embedded node look like a process.
type embedded struct{ *testutil.Node }

func (n embedded) Kill() { n.Down() }

func (n embedded) RestartEmpty() error {
	n.Node.RestartEmpty()
	return nil
}

type nodes struct {
	all  []node
	kind string
}

// startNodes starts n nodes: processes if there is a redis-server, embedded ones otherwise.
func startNodes(n int) (*nodes, error) {
	ns := &nodes{kind: "redis-server processes"}
	if !testutil.ServerAvailable() {
		ns.kind = "embedded, because redis-server is not on PATH"
		for range n {
			ns.all = append(ns.all, embedded{testutil.StartNode()})
		}
		return ns, nil
	}
	for i := range n {
		server, err := testutil.StartServer("") // its directory goes with it
		if err != nil {
			ns.close()
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		ns.all = append(ns.all, server)
	}
	return ns, nil
}

// clients returns new ones; they are closed with the nodes.
func (ns *nodes) clients() []redis.UniversalClient {
	clients := make([]redis.UniversalClient, len(ns.all))
	for i, n := range ns.all {
		clients[i] = n.Client()
	}
	return clients
}

func (ns *nodes) close() {
	for _, n := range ns.all {
		n.Close()
	}
}
