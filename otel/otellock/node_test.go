package otellock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// point returns the name of a point about a node.
func (w *world) point(metric string, node int, more string) string {
	return fmt.Sprintf("%s{node.index=%d,server.address=%s%s}", metric, node, w.nodes[node].Name(), more)
}

// checkVoting checks the metric for each node. Its value is 1 if the node votes.
func (w *world) checkVoting(want ...float64) {
	w.t.Helper()
	synctest.Wait()
	points := w.points()
	for i, votes := range want {
		if got, ok := points[w.point("node.voting", i, "")]; !ok || got != votes {
			w.t.Errorf("node %d: voting is %v (%v), want %v", i, got, ok, votes)
		}
	}
}

func nothing(context.Context) error { return nil }

func TestNodesAreCharted(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer())
		lock := func() {
			locks.Do(t.Context(), "k", nothing)
			time.Sleep(2 * time.Second)
		}
		lock()
		w.checkVoting(1, 1, 1)

		w.nodes[1].SlowReplies(150 * time.Millisecond)
		w.nodes[2].Down()
		for range 4 {
			lock()
		}
		locks.Do(t.Context(), "k", nothing)
		w.checkVoting(1, 1, 0)
		w.nodes[2].RestartEmpty()
		w.nodes[2].Up()
		lock()
		w.checkVoting(1, 1, 0)
		w.nodes[1].SlowReplies(0)
		time.Sleep(20 * time.Second) // the quarantine begins when the circuit breaker lets a request through
		lock()
		w.checkVoting(1, 1, 1)

		points := w.points()
		requests := func(node int, verdict string) (sum float64) {
			for point, n := range points {
				of := fmt.Sprintf("node.request.duration{node.index=%d,", node)
				if strings.HasPrefix(point, of) && strings.Contains(point, "verdict="+verdict) {
					sum += n
				}
			}
			return sum
		}
		if n := requests(2, "failed"); n < 3 {
			t.Errorf("%v failures of the node that was down", n)
		}
		if requests(2, "quarantined") == 0 || requests(2, "granted") == 0 || requests(2, "circuit_open") != 0 {
			t.Errorf("verdicts on a node that was restarted: %v", points)
		}
		// The other nodes decided without the slow node, but its replies were recorded, too.
		if slow, fast := requests(1, ""), requests(0, ""); slow < fast-2 || slow == 0 {
			t.Errorf("%v requests of the slow node, %v of the quick one", slow, fast)
		}
	})
}

// A process without traffic still knows the state of its nodes: a node that is back after an outage, and a node that
// goes away.
func TestVotingWithoutTraffic(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer())
		const touched = 6 * time.Second // every 5 s, plus the time to answer
		time.Sleep(touched)
		w.checkVoting(1, 1, 1) // never used
		locks.Do(t.Context(), "k", nothing)

		w.nodes[1].Down() // requests notice it
		for range 4 {
			locks.Do(t.Context(), "k", nothing)
			time.Sleep(time.Second)
		}
		w.checkVoting(1, 0, 1)
		w.nodes[1].Up()
		time.Sleep(touched)
		w.checkVoting(1, 1, 1)

		w.nodes[2].Down() // without traffic
		time.Sleep(touched)
		w.checkVoting(1, 1, 0)
		w.nodes[2].Up()
		time.Sleep(touched)
		w.checkVoting(1, 1, 1)
	})
}

// The check of a rolling restart that the manual describes, in a process without traffic. For each node, the metric
// shows that it is away. Then it shows, within the time that the manual names, that the node votes again.
func TestRollingRestartWithoutTraffic(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		const maxTTL = 10 * time.Second
		w.locks(w.observer(), core.WithMaxTTL(maxTTL))
		time.Sleep(6 * time.Second)
		for i, n := range w.nodes {
			voting := func() bool {
				synctest.Wait()
				return w.points()[w.point("node.voting", i, "")] == 1
			}
			if !voting() {
				t.Fatalf("node %d does not vote before its restart", i)
			}
			n.RestartEmpty()
			began := time.Now()
			for voting() {
				if time.Sleep(time.Second); time.Since(began) > 6*time.Second {
					t.Fatalf("node %d was restarted, and is said to vote", i)
				}
			}
			for !voting() {
				if time.Sleep(time.Second); time.Since(began) > maxTTL+12*time.Second {
					t.Fatalf("node %d does not vote %v after its restart", i, time.Since(began))
				}
			}
		}
	})
}

func TestClockOffset(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer())
		w.nodes[1].StepClock(200 * time.Millisecond)
		w.nodes[2].StepClock(-time.Minute)
		lease := w.acquire(locks, "k")
		synctest.Wait() // the third node is asked, too, although the others have decided
		lease.Release(t.Context())
		points := w.points()
		for i, want := range []float64{0, 0.2, -60} {
			got, ok := points[w.point("node.clock.offset", i, "")]
			if !ok || got < want-0.01 || got > want+0.01 {
				t.Errorf("node %d is %vs off, want %v", i, got, want)
			}
		}
	})
}

// Every verdict that says something about a node counts. A node that refused to vote counts as voting again when it
// grants something that it would not grant in quarantine.
func TestVotesOfANode(t *testing.T) {
	type said struct {
		kind core.OpKind
		v    core.Verdict
	}
	refused := said{core.OpTouch, core.VerdictQuarantined}
	for _, c := range []struct {
		before []said
		last   said
		want   string // the value; empty: unknown
	}{
		{nil, said{core.OpRenew, core.VerdictGranted}, "1"},
		{nil, said{core.OpAcquire, core.VerdictHeld}, "1"},
		{nil, said{core.OpAcquire, core.VerdictDone}, "1"},
		{nil, said{core.OpRelease, core.VerdictGone}, "1"},
		{nil, said{core.OpComplete, core.VerdictForgotten}, "1"},
		{nil, said{core.OpRenew, core.VerdictHealed}, "1"},
		{nil, said{core.OpRenew, core.VerdictPassed}, "1"},
		{nil, said{core.OpRenew, core.VerdictUnconfirmed}, "1"},
		{nil, said{core.OpRenew, core.VerdictFailed}, "0"},
		{nil, said{core.OpAcquire, core.VerdictTimedOut}, "0"},
		{nil, said{core.OpAcquire, core.VerdictCircuitOpen}, "0"},
		{nil, said{core.OpRenew, core.VerdictQuarantined}, "0"},
		{nil, said{core.OpAcquire, core.VerdictClockSkewed}, "0"},
		{nil, said{core.OpAcquire, core.VerdictReplica}, "0"},
		{nil, said{core.OpAcquire, core.VerdictUnguarded}, "0"},
		{nil, said{core.OpAcquire, core.VerdictTooLate}, ""},
		{nil, said{core.OpAcquire, core.VerdictPending}, ""},
		{[]said{{core.OpRenew, core.VerdictFailed}}, said{core.OpRelease, core.VerdictGranted}, "0"}, // it may have been restarted
		{[]said{{core.OpRenew, core.VerdictFailed}}, said{core.OpRenew, core.VerdictGranted}, "1"},
		{[]said{refused}, said{core.OpRenew, core.VerdictGranted}, "1"},
		{[]said{refused}, said{core.OpRenew, core.VerdictHealed}, "0"},
		{[]said{refused}, said{core.OpRelease, core.VerdictGranted}, "0"},
		{[]said{refused, {core.OpRenew, core.VerdictFailed}}, said{core.OpRenew, core.VerdictPassed}, "0"},
		{[]said{refused}, said{core.OpAcquire, core.VerdictHeld}, "1"},
		{[]said{refused}, said{core.OpTouch, core.VerdictGranted}, "1"},
		{[]said{refused, {core.OpTouch, core.VerdictGranted}}, said{core.OpRenew, core.VerdictHealed}, "1"},
	} {
		g := newGauge(t)
		o := g.observer()
		for _, s := range c.before {
			o.Node(t.Context(), s.kind, core.NodeReply{Verdict: s.v})
		}
		o.Node(t.Context(), c.last.kind, core.NodeReply{Verdict: c.last.v})
		got, ok := g.points()["node.voting{node.index=0}"]
		if ok != (c.want != "") || ok && fmt.Sprint(got) != c.want {
			t.Errorf("after %v, %v answered %v: %v (%v), want %q", c.before, c.last.kind, c.last.v, got, ok, c.want)
		}
	}
}

// A process that only holds leases finds that a node votes again after it was away or restarted empty.
func TestVotingOfAProcessThatHolds(t *testing.T) {
	for name, fault := range map[string]func(n *testutil.Node){
		"restarted empty": (*testutil.Node).RestartEmpty,
		"away": func(n *testutil.Node) {
			n.Down()
			time.AfterFunc(20*time.Second, n.Up)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				locks := w.locks(w.observer())
				defer w.acquire(locks, "k").Release(t.Context())
				time.Sleep(10 * time.Second)
				w.checkVoting(1, 1, 1)
				fault(w.nodes[2])
				time.Sleep(9 * time.Second)
				w.checkVoting(1, 1, 0)
				time.Sleep(30 * time.Second)
				w.checkVoting(1, 1, 1)
			})
		})
	}
}

// A node that no Locker uses any more is not reported.
func TestNodeThatWasReplaced(t *testing.T) {
	bubble(t, 4, func(t *testing.T, w *world) {
		o, all := w.observer(), w.nodes
		w.nodes = all[:3]
		first := w.locks(o)
		all[2].Down()
		for range 20 {
			first.Do(t.Context(), "k", nothing)
			time.Sleep(time.Second)
		}
		w.checkVoting(1, 1, 0)
		if spare := w.points()["nodes.spare{}"]; spare != 0 {
			t.Errorf("%v nodes to spare", spare)
		}

		all[2].Up()
		first.Close(t.Context())
		w.nodes = []*testutil.Node{all[0], all[1], all[3]}
		var clients []redis.UniversalClient
		for _, n := range w.nodes {
			clients = append(clients, n.ClientWith(func(o *redis.Options) { o.PoolSize = 200; o.MaxRetries = -1 }))
		}
		second, err := core.New(clients, core.WithObserver(o))
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close(t.Context())

		time.Sleep(2 * time.Minute)
		w.checkVoting(1, 1, 1)
		points := w.points()
		for point := range points {
			if strings.Contains(point, all[2].Name()) && !strings.HasPrefix(point, "node.request.duration") {
				t.Errorf("the node that was replaced is still there: %s", point)
			}
		}
		if spare, ok := points["nodes.spare{}"]; spare != 1 || !ok {
			t.Errorf("%v nodes to spare, %v", spare, ok)
		}
		w.nodes = all
	})
}

// A second Locker with other nodes does not hide that the first one has no node to spare.
func TestNodesToSpare(t *testing.T) {
	g := newGauge(t)
	o := g.observer()
	say := func(locker uint64, of, node int, v core.Verdict) {
		o.Node(t.Context(), core.OpAcquire, core.NodeReply{LockerID: locker, Of: of, Node: node, Addr: fmt.Sprint(locker, "-", node), Verdict: v})
	}
	spare := func(want string) {
		t.Helper()
		got, ok := g.points()["nodes.spare{}"]
		if text := fmt.Sprint(got); ok != (want != "") || ok && text != want {
			t.Errorf("%v nodes to spare (%v), want %q", got, ok, want)
		}
	}

	say(1, 1, 0, core.VerdictGranted)
	spare("") // a single node has none to spare
	for node := range 3 {
		say(2, 3, node, core.VerdictGranted)
	}
	spare("1")
	for node := range 5 {
		say(3, 5, node, core.VerdictGranted)
	}
	spare("1")
	say(2, 3, 1, core.VerdictFailed)
	spare("0")
	say(3, 5, 1, core.VerdictFailed)
	spare("0")
	say(2, 3, 1, core.VerdictHeld)
	spare("1")
	for node := range 3 {
		say(3, 5, node, core.VerdictQuarantined)
	}
	spare("-1")
}

func TestNodeNames(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:6379":       ",server.address=10.0.0.1,server.port=6379",
		"[::1]:6379":          ",server.address=::1,server.port=6379",
		"cluster [a:1 b:2]":   ",server.address=cluster [a:1 b:2]",
		"/var/run/redis.sock": ",server.address=/var/run/redis.sock",
		"":                    "",
	} {
		g := newGauge(t)
		g.observer().Node(t.Context(), core.OpAcquire, core.NodeReply{Node: 4, Addr: addr, Verdict: core.VerdictGranted})
		want = "node.request.duration{node.index=4" + want + ",verdict=granted} 1"
		if got := g.counted("node.request.duration"); !slices.Equal(got, []string{want}) {
			t.Errorf("%q: %q, want %q", addr, got, want)
		}
	}
}

// The duration of a request that was not sent is not recorded.
func TestRequestsThatAreNotSentAreNotTimed(t *testing.T) {
	g := newGauge(t)
	g.observer().Node(t.Context(), core.OpAcquire, core.NodeReply{Verdict: core.VerdictCircuitOpen})
	for point := range g.points() {
		if strings.HasPrefix(point, "node.request.") {
			t.Errorf("%s was measured", point)
		}
	}
}
