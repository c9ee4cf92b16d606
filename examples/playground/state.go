package main

import (
	"cmp"
	"fmt"
	"time"
)

// state is what the page shows now.
func (p *playground) state() State {
	with, lostWith, lostWithout := p.store.updates()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tally.Updates, p.tally.LostWith, p.tally.LostWithout = with, lostWith, lostWithout
	p.judgeNow()
	now := millis(time.Now())
	s := State{Now: now, Began: millis(p.began), EndsAt: p.endsAt, TTLMs: inMillis(ttl), Kind: p.nodes.all.Kind, Unsafe: p.unsafe, Scenario: p.scenario, Counters: p.tally.Counters, Verdict: p.judge.verdict()}
	for i := range nodeCount {
		s.Nodes = append(s.Nodes, p.nodeState(i))
	}
	wait := Histogram{}
	wait.add(p.past)
	for _, name := range replicaNames {
		x := p.replicas[name]
		r := ReplicaState{Name: name, State: x.is, SkewMs: p.skew[name], Leader: x.leader, Held: p.judge.held(x.life, now),
			Waiting: x.stats.Waiting, Cut: p.network.cutFrom(name)}
		if r.Waiting == nil {
			r.Waiting = []string{}
		}
		s.Replicas = append(s.Replicas, r)
		wait.add(x.stats.Wait)
	}
	s.Wait = wait.state()
	return s
}

// nodeState is what was done to a node, and what the replicas that are up have heard of it.
func (p *playground) nodeState(i int) NodeState {
	n := NodeState{I: i, Addr: p.nodes.all.Addrs[i], Breaker: "closed"}
	n.State = p.nodes.state(i)
	if n.State == up {
		n.State = cmp.Or(p.network.state(i), up)
	}
	heard := 0
	for _, name := range replicaNames {
		x := p.replicas[name]
		if x.is != up || i >= len(x.stats.Nodes) {
			continue
		}
		s := x.stats.Nodes[i]
		switch s.Verdict {
		case "quarantined":
			n.Guard = fmt.Sprintf("quarantined %.1fs", s.RestMs/1000)
		case "circuit_open":
			n.Breaker = "open"
		case "failed", "timed_out", "pending", "":
		default:
			n.Votes = true
		}
		n.LatencyMs += s.Ms
		heard++
	}
	if heard > 0 {
		n.LatencyMs /= float64(heard)
	}
	switch {
	case p.unsafe.Guard:
		n.Guard = "off"
	case n.Guard != "":
		n.Votes = false
	case n.Votes:
		n.Guard = "voting"
	default:
		n.Guard = "not known"
	}
	return n
}
