package leader_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

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
		c := w.electedDoes(fmt.Sprint(i), w.first.Replica(), func(c *candidate) { elected <- c })
		all = append(all, c)
		time.Sleep(time.Second) // candidates are in the order of their clocks
	}
	testutil.Receive(w.T, elected)
	w.each(func(n *testutil.Node) { n.Slow(oneWay); n.SlowReplies(oneWay) })
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

// The next in line leads within two round trips of the release: the nodes tell it, and it asks.
func TestSuccession(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			bubble(t, nodes, func(w *world) {
				all, elected := w.line(5)
				for i, c := range all[:4] {
					// Between the seconds at which candidates began: what is asked together takes some milliseconds more.
					time.Sleep(1500 * time.Millisecond)
					w.succeeds(all[i+1], elected, func() error {
						if i%2 == 0 {
							return c.Close(w.Context())
						}
						c.Resign()
						return nil
					})
				}
			})
		})
	}
}

// succeeds demands that next is elected two round trips after the leader leaves.
func (w *world) succeeds(next *candidate, elected chan *candidate, leave func() error) {
	w.Helper()
	start := time.Now()
	isErr(w.T, "leaving", leave(), nil)
	got := testutil.Receive(w.T, elected)
	if took := time.Since(start); got != next || took > 4*oneWay {
		w.Fatalf("%s leads %v after the release, %s was next", got.name, took, next.name)
	}
	if !next.leads() {
		w.Error("it was told before it leads")
	}
}

// A follower that is closed goes at once, also while nodes do not answer, and holds up no other.
func TestFollowerCloses(t *testing.T) {
	bubble(t, 3, func(w *world) {
		all, elected := w.line(4)
		for i, fault := range []func(*testutil.Node){(*testutil.Node).Up, (*testutil.Node).Hang} {
			w.each(fault)
			start := time.Now()
			if err := all[i+1].Close(w.Context()); err != nil || time.Since(start) != 0 {
				w.Errorf("closed after %v: %v", time.Since(start), err)
			}
			w.each((*testutil.Node).Up)
			time.Sleep(ttl)
		}
		w.succeeds(all[3], elected, func() error { all[0].Resign(); return nil })
	})
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

// A leader renews its lease, and does nothing else; what goes beyond that is for the restart guard. Followers do nothing but
// ask now and then.
func TestRequests(t *testing.T) {
	for followers, most := range map[int]float64{0: 0.6, 10: 16} {
		t.Run(fmt.Sprintf("%d followers", followers), func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				w.line(followers + 1)
				if each := w.requests(time.Minute); each > most {
					w.Errorf("%.2f requests to a node each second", each)
				}
			})
		})
	}
}
