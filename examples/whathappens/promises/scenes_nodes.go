package main

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/examples/internal/stage"
	"github.com/lockkit/lockkit/examples/whathappens/nemesis"
	"github.com/lockkit/lockkit/testutil"
)

// What happens to nodes.

// quarantined is the verdict of a node that is.
const quarantined = "quarantined"

var oneNode = scene{name: "one node", takes: 45 * time.Second, rows: []*row{{
	what: "**One of three nodes** dies or restarts empty",
	promises: []promise{
		{ofHolder, "Notices nothing", keeps("holder")},
		{ofHolder, "Its lease is back on the node at the next renewal", backOnNode(0, fixed(renewal+inspectPeriod))},
		{ofHolder, "If the node was away for more than a second and comes back empty, that may have to wait for its quarantine: up to # s", backOnNode(1, figure(0))},
		{ofCallers, "Locks are granted at once", grantsAtOnce("empty", "dead", "back")},
		{ofCallers, "The node votes again # s after the first request that it gets", all(votesAgain(0), votesAgain(1))},
	},
	left: []left{{ofCallers, "A completion record that only two nodes had", "a permission"}},
}}, play: func(p *play) error {
	return inOrder(
		func() error { return p.holds("a", "holder", p.key("account")) },
		func() error {
			return p.orders("b", order{Do: inspect, Op: "held", Key: p.key("account")}, order{Do: inspect, Op: "spare", Key: p.key("spare")})
		},
		p.settle,
		func() error { return p.nodes[0].RestartEmpty() },
		func() error {
			p.strikes(restartOf(0))
			return p.orders("b", order{Do: acquire, Op: "empty", Key: p.key("empty")})
		},
		func() error { return p.sleep(12 * time.Second) },
		func() error { p.strikes(""); p.nodes[1].Kill(); return nil },
		func() error { return p.orders("b", order{Do: acquire, Op: "dead", Key: p.key("dead")}) },
		func() error { return p.sleep(4 * time.Second) },
		func() error { return p.nodes[1].RestartEmpty() },
		func() error {
			p.strikes(restartOf(1))
			return p.orders("c", order{Do: acquire, Op: "back", Key: p.key("back")})
		},
		func() error { return p.sleep(15 * time.Second) },
	)
}}

// restartOf names the restart of a node.
func restartOf(node int) string { return fmt.Sprint("restart of ", node) }

// renewal is the longest time between two renewals, as the head of the document says: 3.3 s and 10 %.
const renewal = 3700 * time.Millisecond

// onNode is what a node says of a key that is inspected under a name.
func onNode(op string, node int) filter {
	return func(e event) bool { return e.Kind == isNode && e.Op == op && e.Status == node }
}

// backOnNode judges that a node had the lease of the holder again in time after its restart.
func backOnNode(node int, limit func(figures) time.Duration) judge {
	return func(s seen, f figures) finding {
		lease, _ := s.first(is(isGranted, "holder"))
		began := s.struck(restartOf(node))
		back, ok := s.first(onNode("held", node).and(after(began)).and(func(e event) bool { return e.Token == lease.Token }))
		if !ok {
			return bad("it is not back on node %d", node)
		}
		return within(back.At.Sub(began), 0, limit(f))
	}
}

// votesAgain judges when the quarantine of a node was over, by one figure. Traffic sends it a request as soon as it is up.
func votesAgain(node int) judge {
	return func(s seen, f figures) finding {
		began := s.struck(restartOf(node))
		again, ok := s.first(onNode("spare", node).and(after(began)).and(func(e event) bool { return e.Text == "gone" }))
		if !ok {
			return bad("node %d does not vote again", node)
		}
		return within(again.At.Sub(began), f[0], f[0]+time.Second)
	}
}

// regranted judges that no other lock was granted for a time, and then soon: by one figure.
func regranted(s seen, f figures) finding {
	granted, ok := s.first(is(isGranted, "insists"))
	if !ok {
		return bad("no lock is granted again")
	}
	took := granted.At.Sub(s.struck(""))
	if took < f[0]-rounding {
		return unsafe("granted after %s", seconds(took))
	}
	return within(took, f[0], f[0]+1500*time.Millisecond) // the restart itself takes time
}

// empties plays a fault after which no node votes for 10 s. The key "done" is completed.
func empties(p *play, fault func() error) error {
	return inOrder(
		func() error { return p.holds("a", "holder", p.key("account")) },
		func() error { return p.holds("b", "before", p.key("counted")) },
		func() error { return p.orders("b", order{Do: release, Op: "before"}) },
		p.settle,
		func() error { return p.holds("a", "completes", p.key("completes")) }, // its first renewal is 3 s away
		func() error { p.strikes(""); return fault() },
		func() error {
			return p.orders("a", order{Do: complete, Op: "completes"})
		},
		func() error {
			return p.orders("b", order{Do: insist, Op: "insists", Key: p.key("counted")},
				order{Do: acquire, Op: "waits", Key: p.key("waits")},
				order{Do: acquire, Op: "gives up", Key: p.key("gives up"), MaxWait: 3 * time.Second})
		},
		func() error {
			p.see(16*time.Second, is(isGranted, "insists"))
			p.see(time.Second, is(isGranted, "waits"))
			return p.orders("c", order{Do: once, Op: "again", Key: p.key("done")})
		},
		func() error {
			p.see(10*time.Second, is(isOnce, "again"))
			return p.sleep(renewal)
		},
	)
}

// completes makes a completion record of the key "done".
func (p *play) completes() error {
	if err := p.orders("c", order{Do: once, Op: "record", Key: p.key("done")}); err != nil {
		return err
	}
	_, err := p.await("the record", patience, is(isOnce, "record"))
	return err
}

func restartEmpty(p *play, nodes ...int) error {
	return p.onNodes(nodes, (*testutil.Server).RestartEmpty)
}

var (
	callersWait = all(waits("waits", func(s seen) time.Time { return s.struck("").Add(9 * time.Second) }), returns(isRefused, "gives up", "unavailable", ""))
	forgotten   = returns(isComplete, "completes", "lost", "forgotten")
	recordLost  = func(s seen, _ figures) finding {
		e, ok := s.first(is(isOnce, "again"))
		if !ok || e.Text != "ran" {
			return bad("not run again: %q", e.Err)
		}
		return good("ran again")
	}
	recordKept = returns(isOnce, "again", "done", "")
	tokensGrow = func(s seen, _ figures) finding {
		before, _ := s.first(is(isGranted, "before"))
		later, ok := s.first(is(isGranted, "insists"))
		switch {
		case !ok:
			return bad("no lock is granted again")
		case later.Token <= before.Token:
			return unsafe("%d after %d", later.Token, before.Token)
		}
		return good("%d after %d", later.Token, before.Token)
	}
)

// leaseTTL is the TTL of the locks, which is core's default.
const leaseTTL = 10 * time.Second

var twoEmpty = scene{name: "two empty", takes: 39 * time.Second, forgets: true, rows: []*row{{
	what: "**Two of three nodes** restart empty",
	promises: []promise{
		{ofHolder, "Keeps its lease, which the next renewal brings back to the nodes", keeps("holder")},
		{ofHolder, "Until then, `Complete` returns `ErrLost` (reason `forgotten`)", forgotten},
		{ofCallers, "No new lock is granted for # s", regranted},
		{ofCallers, "callers wait or get `ErrUnavailable`", callersWait},
		{ofCallers, "A completion record that was on those two only is lost", recordLost},
	},
}}, play: func(p *play) error {
	return inOrder(
		func() error { p.unreachable(names, []int{2}, false); return nil }, // so that the record is on the others only
		p.completes,
		func() error { return p.sleep(leaseTTL + nodeTimeout) }, // a completion may wait to be sent until its lease runs out
		func() error { p.reachable(); return nil },
		func() error { return empties(p, func() error { return restartEmpty(p, 0, 1) }) },
	)
}}

var allEmpty = scene{name: "all empty", takes: 30 * time.Second, forgets: true, rows: []*row{{
	what: "**All nodes** restart empty, without AOF",
	promises: []promise{
		{ofHolder, "Keeps its lease, as above", all(keeps("holder"), forgotten)},
		{ofCallers, "No new lock for # s, as above", all(regranted, callersWait)},
		{ofCallers, "All completion records are lost", recordLost},
		{ofCallers, "Tokens go on growing", tokensGrow},
	},
}}, play: func(p *play) error {
	return inOrder(p.completes, func() error {
		return empties(p, func() error { return restartEmpty(p, 0, 1, 2) })
	})
}}

var allPersistent = scene{name: "all persistent", takes: 30 * time.Second, rows: []*row{{
	what: "**All nodes** restart with AOF",
	promises: []promise{
		{ofHolder, "Keeps its lease, as above", keeps("holder")},
		{ofCallers, "No new lock for # s, as above", all(regranted, callersWait)},
		{ofCallers, "Completion records are kept, with `appendfsync everysec` all but those of the last second", recordKept},
	},
}}, play: func(p *play) error {
	return inOrder(p.completes, func() error {
		return empties(p, func() error { return p.onNodes([]int{0, 1, 2}, (*testutil.Server).Restart) })
	})
}}

var single = scene{name: "single", takes: 32 * time.Second, rows: []*row{{
	what: "**A single Redis** (guard off) restarts empty",
	promises: []promise{
		{ofHolder, "the holder learns it at its next renewal, within # s", func(s seen, f figures) finding {
			e, ok := s.first(is(isEnded, "holder").and(failed("lost")))
			if !ok {
				return bad("it does not learn it")
			}
			return within(e.At.Sub(s.struck("")), 0, f[0])
		}},
		{ofCallers, "The key is granted again at once: two holders for up to # s", all(grantsAtOnce("second"), func(s seen, f figures) finding {
			second, _ := s.first(is(isGranted, "second"))
			last := second.At
			for _, e := range s.all(is(isLive, "holder")) {
				last = e.At
			}
			return within(last.Sub(second.At), -time.Hour, f[0])
		})},
		{ofCallers, "`WithRestartGuard(true)` prevents it, and costs # s without locks after each restart", regranted},
	},
}}, play: func(p *play) error {
	alone, err := testutil.StartServer("")
	if err != nil {
		return err
	}
	defer alone.Close()
	key := p.key("single")
	p.alone[key] = true
	on := func(locks string) func(*order) { return func(o *order) { o.Locks = locks } }
	return inOrder(
		func() error { return p.everybody(order{Do: open, Locks: "single", Nodes: urls(alone)}) },
		func() error { return p.everybody(order{Do: open, Locks: "guarded", Nodes: urls(alone), Guard: true}) },
		func() error { return p.holds("a", "holder", key, on("single")) },
		func() error {
			return p.holds("a", "guarded", p.key("guarded"), on("guarded"), func(o *order) { o.Do = insist })
		},
		p.settle,
		func() error { p.strikes(""); return alone.RestartEmpty() },
		func() error {
			return p.orders("b", order{Do: acquire, Op: "second", Key: key, Locks: "single"}, order{Do: insist, Op: "insists", Key: p.key("other"), Locks: "guarded"})
		},
		func() error {
			p.see(8*time.Second, is(isEnded, "holder"))
			p.see(16*time.Second, is(isGranted, "insists"))
			return nil
		},
	)
}}

var outOfMemory = scene{name: "out of memory", takes: 28 * time.Second, rows: []*row{{
	what: "**All nodes are out of memory**",
	promises: []promise{
		{ofHolder, "Notices nothing: it is renewed", keeps("holder")},
		{ofHolder, "`Release` succeeds", returns(isReleased, "releases", "", "")},
		{ofHolder, "`Complete` fails with `ErrUnavailable` until there is memory", all(returns(isComplete, "completes", "unavailable", ""), func(s seen, _ figures) finding {
			e, ok := s.first(is(isComplete, "completes").and(after(s.healed(""))))
			if !ok || e.Err != "" {
				return bad("with memory again: %q", e.Err)
			}
			return good("succeeds with memory again")
		})},
		{ofCallers, "No new lock is granted: `Acquire` waits, and returns `ErrUnavailable` after # to # s", fails("caller", "unavailable")},
	},
	left: []left{{ofCallers, "A lock or a completion may get through", "a permission"}},
}}, play: func(p *play) error {
	// Nothing else goes over the connections of these Lockers.
	alone := func(o *order) { o.Locks = "alone" }
	return inOrder(
		func() error { return p.orders("a", order{Do: open, Locks: "alone", Nodes: p.urlsOf("a")}) },
		func() error { return p.orders("b", order{Do: open, Locks: "alone", Nodes: p.urlsOf("b")}) },
		func() error { return p.holds("a", "holder", p.key("holder")) },
		func() error { return p.holds("a", "releases", p.key("releases")) },
		func() error { return p.holds("a", "completes", p.key("completes"), alone) },
		p.settle,
		func() error { p.strikes(""); return p.setOnNodes(p.ctx, "maxmemory", "1") },
		func() error {
			return p.orders("a", order{Do: release, Op: "releases"}, order{Do: complete, Op: "completes"})
		},
		func() error {
			return p.orders("b", order{Do: acquire, Op: "caller", Key: p.key("new"), Locks: "alone"})
		},
		func() error {
			p.see(15*time.Second, is(isRefused, "caller"))
			p.see(15*time.Second, is(isComplete, "completes"))
			return p.setOnNodes(p.ctx, "maxmemory", "0")
		},
		func() error { p.heals(""); return p.orders("a", order{Do: complete, Op: "completes"}) },
		func() error {
			p.see(10*time.Second, is(isComplete, "completes").and(after(time.Now())))
			return nil
		},
	)
}}

var nameMoves = scene{name: "name moves", takes: 24 * time.Second, rows: []*row{{
	what: "**A node's name moves** to another server",
	promises: []promise{
		{ofHolder, "Notices nothing", keeps("holder")},
		{ofHolder, "The node is back at the next renewal or the one after it, within # s", func(s seen, f figures) finding {
			back, isBack := s.struck(""), false
			for _, e := range s.all(onNode("held", 0).and(after(back)).and(before(s.healed("")))) {
				isBack = e.Text == "gone" || e.Text == quarantined || e.Text == "held"
				if !isBack {
					back = e.At.Add(inspectPeriod)
				}
			}
			if !isBack {
				return bad("the node is not back")
			}
			return within(back.Sub(s.struck("")), 0, f[0])
		}},
		{ofCallers, "Notices nothing while a quorum of names has not moved", grantsAtOnce("free", "free2")},
		{ofCallers, "A promoted server is in quarantine", func(s seen, _ figures) finding {
			e, ok := s.first(onNode("spare", 0).and(after(s.struck(""))).and(func(e event) bool { return e.Text == quarantined }))
			if !ok {
				return bad("it votes without a quarantine")
			}
			return good("after %s", seconds(e.At.Sub(s.struck(""))))
		}},
	},
}}, play: func(p *play) error {
	other, err := testutil.StartServer("")
	if err != nil {
		return err
	}
	defer other.Close()
	return inOrder(
		func() error { return nemesis.Replicate(p.ctx, other, p.nodes[0]) },
		func() error { return p.holds("a", "holder", p.key("account")) },
		func() error { return p.orders("a", order{Do: inspect, Op: "held", Key: p.key("account")}) },
		p.settle,
		func() error {
			p.strikes("")
			for _, name := range names {
				p.proxies[name][0].Move(other.Addr())
			}
			return nemesis.Replicate(p.ctx, other, nil)
		},
		func() error { return nemesis.Replicate(p.ctx, p.nodes[0], other) },
		func() error {
			return p.orders("b", order{Do: acquire, Op: "free", Key: p.key("free")}, order{Do: inspect, Op: "spare", Key: p.key("spare")})
		},
		func() error { return p.sleep(6 * time.Second) },
		func() error { return p.orders("c", order{Do: acquire, Op: "free2", Key: p.key("free2")}) },
		func() error { return p.sleep(3 * time.Second) },
		func() error { p.heals(""); return nemesis.Replicate(p.ctx, p.nodes[0], nil) },
	)
}}

var nonsense = scene{name: "nonsense", takes: 20 * time.Second, rows: []*row{{
	what: "**One node speaks nonsense**",
	promises: []promise{
		{ofHolder, "Notices nothing", keeps("holder")},
		{ofCallers, "Notices nothing", grantsAtOnce("free", "free2")},
		{ofCallers, "the log names the node", func(s seen, _ figures) finding {
			struck, _ := s.first(is(isStruck, ""))
			if _, ok := s.first(logged(struck.Key).and(after(struck.At))); !ok {
				return bad("no log names %s", struck.Key)
			}
			return good("named")
		}},
	},
}}, play: func(p *play) error {
	return inOrder(
		func() error { return p.holds("a", "holder", p.key("account")) },
		p.settle,
		func() error {
			p.world.add(event{Kind: isStruck, Key: p.proxies["a"][0].Addr()})
			for _, name := range names {
				p.proxies[name][0].Mangle(testutil.ToClient, func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") })
				p.proxies[name][0].Cut()
			}
			return nil
		},
		func() error { return p.orders("b", order{Do: acquire, Op: "free", Key: p.key("free")}) },
		func() error { return p.sleep(10 * time.Second) },
		func() error { return p.orders("c", order{Do: acquire, Op: "free2", Key: p.key("free2")}) },
		func() error { p.see(2*time.Second, is(isGranted, "free2")); return nil },
	)
}}

var newNodes = scene{name: "new nodes", takes: 18 * time.Second, rows: []*row{{
	what: "**Nodes are new**",
	promises: []promise{
		{ofCallers, "Callers wait", waits("first", func(s seen) time.Time { return s.struck("").Add(9 * time.Second) })},
		{ofCallers, "The first lock is granted after # s", func(s seen, f figures) finding {
			e, ok := s.first(is(isGranted, "first"))
			if !ok {
				return bad("not granted")
			}
			if e.At.Sub(s.struck("")) < f[0]-rounding {
				return unsafe("granted after %s", seconds(e.At.Sub(s.struck(""))))
			}
			return within(e.At.Sub(s.struck("")), f[0], f[0]+time.Second)
		}},
		{ofCallers, "at once after `lockctl provision`", grantsAtOnce("provisioned")},
	},
	left: []left{{ofCallers, "New nodes in the place of old ones are put in", "advice"}},
}}, play: func(p *play) error {
	var servers []*testutil.Server
	defer func() {
		for _, s := range servers {
			s.Close()
		}
	}()
	for range 6 {
		s, err := testutil.StartServer("")
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	fresh, declared := urls(servers[:3]...), urls(servers[3:]...)
	return inOrder(
		func() error { return stage.Provision(p.ctx, declared) },
		func() error {
			p.strikes("") // opening is the first request
			return p.orders("a", order{Do: open, Locks: "fresh", Nodes: fresh}, order{Do: acquire, Op: "first", Key: p.key("first"), Locks: "fresh"})
		},
		func() error {
			return p.orders("b", order{Do: open, Locks: "declared", Nodes: declared}, order{Do: acquire, Op: "provisioned", Key: p.key("provisioned"), Locks: "declared"})
		},
		func() error {
			p.see(14*time.Second, is(isGranted, "first"))
			return nil
		},
	)
}}
