package leader_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil"
)

// oneWay is how long a message takes to a node, or from it, once candidates are in line.
const oneWay = 10 * time.Millisecond

// line starts n candidates; the first leads, and the others wait in this order. Who is elected from then on is told.
func (w *world) line(n int) (all []*candidate, elected chan *candidate) {
	w.Helper()
	lease, err := w.first.Acquire(w.Context(), "scripts") // the first run of a script takes a round trip more
	if err != nil {
		w.Fatal(err)
	}
	lease.Release(w.Context())
	elected = make(chan *candidate, n)
	for i := range n {
		var c *candidate
		ready := make(chan struct{})
		c = w.candidate(fmt.Sprint(i), leader.OnElected(func(context.Context, leader.Term) {
			<-ready
			elected <- c
		}))
		close(ready)
		all = append(all, c)
		time.Sleep(time.Second) // candidates are in the order of their clocks
	}
	testutil.Receive(w.T, elected)
	for _, n := range w.nodes {
		n.Slow(oneWay)
		n.SlowReplies(oneWay)
	}
	var looks sync.WaitGroup
	for _, c := range all {
		for range 5 { // at once, so that nobody has to dial later, which takes a round trip more
			looks.Go(func() {
				if _, err := c.locks.Inspect(w.Context(), "scripts"); err != nil {
					w.Error(err)
				}
			})
		}
	}
	looks.Wait()
	time.Sleep(ttl)
	return all, elected
}

// queues are who waits, by node; one that was not needed for a refusal may not have heard of it.
func (w *world) queues() (all [][]string) {
	w.Helper()
	for _, n := range w.nodes {
		var waits []string
		for _, key := range keysOf(n, "w", "cron-leader") {
			got, err := n.Exec("ZRANGE", key, 0, -1)
			if err != nil {
				w.Fatal(err)
			}
			for _, wait := range got.([]any) {
				waits = append(waits, wait.(string))
			}
		}
		all = append(all, waits)
	}
	return all
}

// waiting reports whether a quorum of nodes has n in its queues, and none has more.
func (w *world) waiting(n int) bool {
	w.Helper()
	on := 0
	for _, q := range w.queues() {
		if len(q) > n {
			return false
		}
		if len(q) == n {
			on++
		}
	}
	return on > len(w.nodes)/2
}

// The next in line leads within two round trips of the release: the nodes tell it, and it asks.
func TestSuccession(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		for name, leave := range map[string]func(c *candidate, ctx context.Context) error{
			"resigned": func(c *candidate, ctx context.Context) error { return c.Resign(ctx) },
			"closed":   func(c *candidate, ctx context.Context) error { return c.Close(ctx) },
		} {
			t.Run(fmt.Sprintf("%s, %d nodes", name, nodes), func(t *testing.T) {
				bubble(t, nodes, func(w *world) {
					all, elected := w.line(6)
					for i, c := range all[:5] {
						// Between the looks for requests, and the seconds at which candidates began: what is asked together takes
						// some milliseconds more.
						time.Sleep(1500 * time.Millisecond)
						w.succeeds(all[i+1], elected, func() error { return leave(c, w.Context()) })
					}
				})
			})
		}
	}
}

// succeeds demands that next is elected two round trips after the leader leaves.
func (w *world) succeeds(next *candidate, elected chan *candidate, leave func() error) {
	w.Helper()
	start := time.Now()
	left := during(leave)
	got := testutil.Receive(w.T, elected)
	if took := time.Since(start); got != next || took > 4*oneWay {
		w.Fatalf("%s leads %v after the release, %s was next", got.name, took, next.name)
	}
	if !next.leads() {
		w.Error("it was told before it leads")
	}
	isErr(w.T, "leaving", testutil.Receive(w.T, left), nil)
}

// A leader that dies is succeeded when its lease ends.
func TestSuccessionOfTheDead(t *testing.T) {
	bubble(t, 3, func(w *world) {
		dead := w.candidate("dead")
		w.leader(taking, dead)
		all := []*candidate{w.candidate("a"), w.candidate("b")}
		time.Sleep(ttl)
		dead.locks.Link.Kill()
		died := time.Now()
		w.leader(ttl+taking, all...)
		if took := time.Since(died); took > ttl+100*time.Millisecond {
			w.Errorf("somebody leads after %v", took)
		}
	})
}

// A follower that is closed goes at once, also while nodes do not answer, and leaves neither goroutines nor a place
// in the queues.
func TestFollowerCloses(t *testing.T) {
	bubbleNow(t, 3, func(w *world) {
		w.line(2)
		locks := w.first.Replica()
		var goroutines int
		for i := range 10 {
			w.comeAndGo(w.candidateOn("f", locks), i == 8)
			if i == 0 {
				goroutines = runtime.NumGoroutine()
			}
		}
		if more := runtime.NumGoroutine() - goroutines; more > 5 {
			w.Errorf("%d more goroutines", more)
		}
	})
}

// comeAndGo has a follower join the queues, and close.
func (w *world) comeAndGo(f *candidate, hung bool) {
	w.Helper()
	time.Sleep(5 * time.Second)
	if !w.waiting(2) {
		w.Errorf("waiting: %q", w.queues())
	}
	if hung {
		for _, n := range w.nodes {
			n.Hang()
		}
	}
	start := time.Now()
	if err := f.Close(w.Context()); err != nil || time.Since(start) != 0 {
		w.Errorf("closed after %v: %v", time.Since(start), err)
	}
	w.heal()
	time.Sleep(3 * time.Second)
	synctest.Wait()
	if !w.waiting(1) {
		w.Errorf("still waiting: %q", w.queues())
	}
}

// requests are those that one node had since the last call, per second.
func (w *world) requests(over time.Duration) float64 {
	w.Helper()
	calls := func() (n int) {
		for _, node := range w.nodes {
			n += node.Calls()["EVALSHA"] + node.Calls()["GET"]
		}
		return n
	}
	before := calls()
	time.Sleep(over)
	return float64(calls()-before) / float64(len(w.nodes)) / over.Seconds()
}

// Followers do nothing while somebody leads, but to ask now and then.
func TestFollowersAreQuiet(t *testing.T) {
	bubble(t, 3, func(w *world) {
		const followers = 20
		w.line(followers + 1)
		if each := w.requests(time.Minute) / followers; each > 1.6 {
			w.Errorf("%.2f requests of a follower to a node each second", each)
		}
	})
}

// A leader renews its lease, and looks every three seconds whether it is to resign.
func TestLeaderIsQuiet(t *testing.T) {
	bubble(t, 3, func(w *world) {
		w.line(1)
		if each := w.requests(5 * time.Minute); each > 0.9 {
			w.Errorf("%.2f requests of a leader to a node each second", each)
		}
	})
}
