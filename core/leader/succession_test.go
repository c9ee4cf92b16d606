package leader_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// oneWay is the time that a message takes to or from a node when the candidates are in line.
const oneWay = 10 * time.Millisecond

// line starts n candidates. The first one leads, and the others wait in their order. Candidates that are elected later
// are sent to the channel elected.
func (w *world) line(n int) (all []*candidate, elected chan *candidate) {
	w.Helper()
	lease, err := w.first.Acquire(w.Context(), "scripts") // the first run of a script takes another round trip
	if err != nil {
		w.Fatal(err)
	}
	lease.Release(w.Context())

	elected = make(chan *candidate, n)
	for i := range n {
		c := w.electedDoes(fmt.Sprint(i), w.first.Replica(), func(c *candidate) { elected <- c })
		all = append(all, c)
		time.Sleep(time.Second) // waiters are queued by the time of their clocks
	}

	testutil.Receive(w.T, elected)
	w.each(func(n *testutil.Node) { n.Slow(oneWay); n.SlowReplies(oneWay) })

	var looks sync.WaitGroup
	for _, c := range all {
		for range 5 { // at once, so that enough connections are open: a later dial would take another round trip
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

// The next candidate in line leads within two round trips after the release: the nodes notify it, and it asks for the
// key.
func TestSuccession(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			bubble(t, nodes, func(w *world) {
				all, elected := w.line(5)
				for i, c := range all[:4] {
					// Half a second after the seconds at which the candidates began. Requests that are sent together
					// take some milliseconds more.
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

// succeeds checks that next is elected within two round trips after the leader leaves.
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

// Close of a follower returns at once, even if nodes do not answer, and the follower does not delay other candidates.
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

// requests returns the number of requests to a node per second, measured over the given time.
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

// A leader sends only the renewals of its lease and the requests of the restart guard. A follower sends only a few
// requests.
func TestRequests(t *testing.T) {
	race.SkipSweep(t)
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
