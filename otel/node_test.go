package otellock

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

func TestNodesAreCharted(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer())
		name := func(metric string, node int, more string) string {
			return metric + "{node.index=" + string(rune('0'+node)) + more + ",server.address=" + w.nodes[node].Name() + "}"
		}
		lock := func() {
			locks.Do(t.Context(), "k", nothing)
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		states := func(want ...string) {
			t.Helper()
			if got := w.counted("node.status"); !slices.Equal(got, want) {
				t.Errorf("states\n\t%q, want\n\t%q", got, want)
			}
		}
		state := func(node int, s string) string { return name("node.status", node, ",node.state="+s) + " 1" }
		lock()
		states(state(0, "voting"), state(1, "voting"), state(2, "voting"))

		w.nodes[1].SlowReplies(150 * time.Millisecond)
		w.nodes[2].Down()
		for range 4 {
			lock()
		}
		locks.Do(t.Context(), "k", nothing)
		states(state(0, "voting"), state(1, "voting"), state(2, "circuit_open"))
		w.nodes[2].RestartEmpty()
		w.nodes[2].Up()
		lock()
		states(state(0, "voting"), state(1, "voting"), state(2, "quarantined"))
		w.nodes[1].SlowReplies(0)
		time.Sleep(10 * time.Second)
		lock()
		states(state(0, "voting"), state(1, "voting"), state(2, "voting"))

		points := w.points()
		if n := points["node.requests{node.index=2,server.address="+w.nodes[2].Name()+",verdict=failed}"]; n < 3 {
			t.Errorf("%v failures of the node that was down", n)
		}
		for _, verdict := range []string{"circuit_open", "quarantined", "granted"} {
			if points["node.requests{node.index=2,server.address="+w.nodes[2].Name()+",verdict="+verdict+"}"] == 0 {
				t.Errorf("no %s", verdict)
			}
		}
		asked := 0.0
		for _, verdict := range []string{"failed", "quarantined", "granted"} {
			asked += points["node.requests{node.index=2,server.address="+w.nodes[2].Name()+",verdict="+verdict+"}"]
		}
		if n := points[name("node.duration", 2, "")]; n < asked || n > asked+2 { // and what a release meets
			t.Errorf("%v requests timed, %v sent: one that is not sent takes no time", n, asked)
		}
		// The others decided without the slow node; it was heard all the same.
		if slow, fast := points[name("node.duration", 1, "")], points[name("node.duration", 0, "")]; slow < fast-2 || slow == 0 {
			t.Errorf("%v requests of the slow node, %v of the quick one", slow, fast)
		}
	})
}

// A process that asks for nothing knows its nodes all the same: one that was away and is back, and one that is gone.
func TestStateWithoutTraffic(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks(w.observer())
		const touched = 6 * time.Second // every 5s, and the time to answer
		states := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			for i, state := range want {
				point := "node.status{node.index=" + strconv.Itoa(i) + ",node.state=" + state + ",server.address=" + w.nodes[i].Name() + "} 1"
				if got := w.counted("node.status"); len(got) != len(want) || !slices.Contains(got, point) {
					t.Errorf("states\n\t%q, want\n\t%q", got, point)
				}
			}
		}
		states(touched, "voting", "voting", "voting") // never used
		locks.Do(t.Context(), "k", nothing)

		w.nodes[1].Down() // and a request notices it
		for range 4 {
			locks.Do(t.Context(), "k", nothing)
			time.Sleep(time.Second)
		}
		states(0, "voting", "circuit_open", "voting")
		w.nodes[1].Up()
		states(touched, "voting", "voting", "voting")

		w.nodes[2].Down() // while nobody asks
		states(touched, "voting", "voting", "failing")
		w.nodes[2].Up()
		states(touched, "voting", "voting", "voting")
	})
}

// The check of a rolling restart that the manual describes, in a process that asks for nothing: each node is seen to
// be away, and to vote again in the time that the manual says.
func TestRollingRestartWithoutTraffic(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		const maxTTL = 10 * time.Second
		w.locks(w.observer(), core.WithMaxTTL(maxTTL))
		time.Sleep(6 * time.Second)
		for i, n := range w.nodes {
			voting := func() bool {
				synctest.Wait()
				return w.points()["node.status{node.index="+strconv.Itoa(i)+",node.state=voting,server.address="+n.Name()+"}"] == 1
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
			t.Logf("node %d votes after %v", i, time.Since(began))
		}
	})
}

func nothing(context.Context) error { return nil }

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
			got, ok := points["node.clock.offset{node.index="+string(rune('0'+i))+",server.address="+w.nodes[i].Name()+"}"]
			if !ok || got < want-0.01 || got > want+0.01 {
				t.Errorf("node %d is %vs off, want %v", i, got, want)
			}
		}
	})
}

// Every verdict leads to a state, and a node that only answers renewals is not said to vote.
func TestStateOfANode(t *testing.T) {
	for _, c := range []struct {
		from nodeState
		kind core.OpKind
		v    core.Verdict
		want nodeState
	}{
		{unknown, core.OpRenew, core.VerdictGranted, voting},
		{"quarantined", core.OpRenew, core.VerdictGranted, "quarantined"},
		{"quarantined", core.OpRelease, core.VerdictGranted, "quarantined"},
		{"quarantined", core.OpAcquire, core.VerdictHeld, voting},
		{"clock_skewed", core.OpAcquire, core.VerdictGranted, voting},
		{"quarantined", core.OpTouch, core.VerdictGranted, voting},
		{voting, core.OpTouch, core.VerdictQuarantined, "quarantined"},
		{failing, core.OpRenew, core.VerdictHealed, voting},
		{failing, core.OpRenew, core.VerdictPassed, voting},
		{open, core.OpComplete, core.VerdictForgotten, voting},
		{"quarantined", core.OpRenew, core.VerdictPassed, "quarantined"},
		{"quarantined", core.OpComplete, core.VerdictForgotten, "quarantined"},
		{open, core.OpRelease, core.VerdictGone, voting},
		{open, core.OpAcquire, core.VerdictFailed, open},
		{voting, core.OpRenew, core.VerdictFailed, failing},
		{failing, core.OpAcquire, core.VerdictCircuitOpen, open},
		{voting, core.OpAcquire, core.VerdictTooLate, voting},
		{voting, core.OpAcquire, core.VerdictPending, voting},
		{voting, core.OpRenew, core.VerdictQuarantined, "quarantined"},
		{voting, core.OpAcquire, core.VerdictReplica, "replica"},
		{voting, core.OpAcquire, core.VerdictUnguarded, "unguarded"},
		{voting, core.OpAcquire, core.VerdictClockSkewed, "clock_skewed"},
	} {
		if got := c.from.next(c.kind, c.v); got != c.want {
			t.Errorf("%q, %v answered %v: %q, want %q", c.from, c.kind, c.v, got, c.want)
		}
	}
}

func TestNodeNames(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.1:6379":       "node.requests{node.index=4,server.address=10.0.0.1,server.port=6379,verdict=granted} 1",
		"[::1]:6379":          "node.requests{node.index=4,server.address=::1,server.port=6379,verdict=granted} 1",
		"cluster [a:1 b:2]":   "node.requests{node.index=4,server.address=cluster [a:1 b:2],verdict=granted} 1",
		"/var/run/redis.sock": "node.requests{node.index=4,server.address=/var/run/redis.sock,verdict=granted} 1",
		"":                    "node.requests{node.index=4,verdict=granted} 1",
	} {
		g := newGauge(t)
		g.observer().Node(t.Context(), core.OpAcquire, core.NodeReply{Node: 4, Addr: addr, Verdict: core.VerdictGranted})
		if got := g.counted("node.requests"); !slices.Equal(got, []string{want}) {
			t.Errorf("%q: %q, want %q", addr, got, want)
		}
	}
}
