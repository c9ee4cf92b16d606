package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// A network is what lies between replicas and nodes: a proxy for each pair, so that one replica can be cut off from a node
// that the others reach.
type network struct {
	mu      sync.Mutex
	proxies map[string][]*testutil.Proxy // by replica
	cut     map[string][]bool
	slow    [nodeCount]time.Duration
}

func newNetwork(replicas, nodes []string) (*network, error) {
	n := &network{proxies: map[string][]*testutil.Proxy{}, cut: map[string][]bool{}}
	for _, r := range replicas {
		n.cut[r] = make([]bool, nodeCount)
		for _, addr := range nodes {
			p, err := testutil.StartProxy(addr)
			if err != nil {
				n.close()
				return nil, err
			}
			n.proxies[r] = append(n.proxies[r], p)
		}
	}
	return n, nil
}

func (n *network) close() {
	for _, proxies := range n.proxies {
		for _, p := range proxies {
			p.Close()
		}
	}
}

// urls are where a replica reaches the nodes.
func (n *network) urls(replica string) []string {
	var urls []string
	for _, p := range n.proxies[replica] {
		urls = append(urls, "redis://"+p.Addr())
	}
	return urls
}

// of returns one replica, or all for "".
func (n *network) of(replica string) []string {
	if replica != "" {
		return []string{replica}
	}
	return replicaNames
}

// cutOff has nothing pass any more between a node and a replica, or all of them. Connections stay open.
func (n *network) cutOff(i int, replica string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.ContainsFunc(n.of(replica), func(r string) bool { return !n.cut[r][i] }) {
		return refusal(fmt.Sprintf("node %d is cut off already", i))
	}
	for _, r := range n.of(replica) {
		n.cut[r][i] = true
		n.proxies[r][i].BlackHole(testutil.ToServer, true)
		n.proxies[r][i].BlackHole(testutil.ToClient, true)
	}
	return nil
}

// slowDown delays what a node answers.
func (n *network) slowDown(i int, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow[i] = d
	for _, proxies := range n.proxies {
		proxies[i].Delay(testutil.ToClient, d)
	}
}

// mend ends cuts and delays of a node. Connections that were cut are reset, because nobody knows what they have lost.
func (n *network) mend(i int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	mended := n.slow[i] > 0
	n.slow[i] = 0
	for r, proxies := range n.proxies {
		proxies[i].Delay(testutil.ToClient, 0)
		if n.cut[r][i] {
			mended = true
			n.cut[r][i] = false
			proxies[i].BlackHole(testutil.ToServer, false)
			proxies[i].BlackHole(testutil.ToClient, false)
			proxies[i].Cut()
		}
	}
	if !mended {
		return refusal(fmt.Sprintf("node %d is neither cut off nor slow", i))
	}
	return nil
}

// cutFrom returns the nodes from which a replica is cut off.
func (n *network) cutFrom(replica string) []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	from := []int{}
	for i, cut := range n.cut[replica] {
		if cut {
			from = append(from, i)
		}
	}
	return from
}

// state is what is wrong with the network of a node: "" for nothing.
func (n *network) state(i int) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cut := range n.cut {
		if cut[i] {
			return "cut"
		}
	}
	if n.slow[i] > 0 {
		return "slow"
	}
	return ""
}
