package nemesis

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// Sizes of sets of nodes.
func minority(nodes int) int  { return (nodes - 1) / 2 }
func majority(nodes int) int  { return nodes/2 + 1 }
func everyNode(nodes int) int { return nodes }

// partition is the part of the network that partitions concern: there is one at a time.
const partition = "partition"

func allClients(size func(int) int) func(*rand.Rand, part) target {
	return func(r *rand.Rand, p part) target {
		return target{nodes: r.Perm(p.nodes)[:size(p.nodes)], clients: clientNames, network: partition}
	}
}

func oneClient(size func(int) int) func(*rand.Rand, part) target {
	return func(r *rand.Rand, p part) target {
		name := clientNames[r.IntN(len(clientNames))]
		return target{nodes: r.Perm(p.nodes)[:size(p.nodes)], clients: []string{name}, network: partition}
	}
}

func wholeNetwork(what string) func(*rand.Rand, part) target {
	return func(*rand.Rand, part) target { return target{network: what} }
}

// between calls do with each proxy between the clients and the nodes of a strike.
func (s *stand) between(t strike, do func(*testutil.Proxy)) error {
	for _, name := range t.clients {
		for _, node := range t.nodes {
			do(s.proxies[name][node])
		}
	}

	return nil
}

// everywhere calls do with all proxies.
func (s *stand) everywhere(do func(*testutil.Proxy)) error {
	for _, proxies := range s.proxies {
		for _, p := range proxies {
			do(p)
		}
	}

	return nil
}

// cutOff makes all that is sent vanish, or connections be refused.
func cutOff(_ context.Context, s *stand, t strike) error {
	hang := on(t, true, false)
	return s.between(t, func(p *testutil.Proxy) {
		if hang {
			p.BlackHole(testutil.ToServer, true)
			p.BlackHole(testutil.ToClient, true)
			return
		}
		p.Refuse(true)
		p.Cut()
	})
}

// swallow makes requests vanish, or replies.
func swallow(_ context.Context, s *stand, t strike) error {
	direction := on(t, testutil.ToServer, testutil.ToClient)
	return s.between(t, func(p *testutil.Proxy) { p.BlackHole(direction, true) })
}

// bridge splits clients and nodes into two halves that have one node in common.
func bridge(ctx context.Context, s *stand, t strike) error {
	middle := len(t.nodes) / 2
	first, second := t, t
	first.clients, first.nodes = t.clients[:2], t.nodes[middle+1:]
	second.clients, second.nodes = t.clients[2:], t.nodes[:middle]

	for _, half := range []strike{first, second} {
		if err := cutOff(ctx, s, half); err != nil {
			return err
		}
	}

	return nil
}

// reconnect ends a partition. What was sent into it is lost, so its connections are of no use any more.
func reconnect(_ context.Context, s *stand, _ strike) error {
	return s.everywhere(func(p *testutil.Proxy) {
		p.BlackHole(testutil.ToServer, false)
		p.BlackHole(testutil.ToClient, false)
		p.Refuse(false)
	})
}

// lossShare is how many chunks close their connection.
const lossShare = 0.05

func loseChunks(_ context.Context, s *stand, _ strike) error {
	return s.everywhere(func(p *testutil.Proxy) { p.CutIf(func() bool { return rand.Float64() < lossShare }) })
}

func keepChunks(_ context.Context, s *stand, _ strike) error {
	return s.everywhere(func(p *testutil.Proxy) { p.CutIf(nil) })
}

// delay makes all messages take longer; each node has another time.
func delay(_ context.Context, s *stand, t strike) error {
	r := rand.New(rand.NewPCG(t.draw, 0))
	times := make([]time.Duration, s.nodes)

	for i := range times {
		times[i] = time.Duration(r.IntN(400)) * time.Millisecond
	}

	for _, name := range slices.Sorted(slices.Values(clientNames)) {
		for i, p := range s.proxies[name] {
			p.Delay(testutil.ToServer, times[i])
			p.Delay(testutil.ToClient, times[i]/2)
		}
	}

	return nil
}

func noDelay(_ context.Context, s *stand, _ strike) error {
	return s.everywhere(func(p *testutil.Proxy) {
		p.Delay(testutil.ToServer, 0)
		p.Delay(testutil.ToClient, 0)
	})
}

func loseReplies(_ context.Context, s *stand, _ strike) error {
	return s.everywhere(func(p *testutil.Proxy) { p.DropNextReply() })
}
