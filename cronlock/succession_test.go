package cronlock

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// oneWay is how long a message takes to a node, or from it, once candidates are in line.
const oneWay = 10 * time.Millisecond

// line starts n candidates of processes of their own; the first leads, and the others wait in this order. Who is
// elected from then on is told.
func (w *world) line(n int) (all []*candidate, elected chan *candidate) {
	w.t.Helper()
	lease, err := w.locks().Acquire(w.t.Context(), "scripts") // the first run of a script takes a round trip more
	if err != nil {
		w.t.Fatal(err)
	}
	lease.Release(w.t.Context())
	elected = make(chan *candidate, n)
	for i := range n {
		c := &candidate{name: fmt.Sprint(i), locks: w.locks()}
		c.Elector = w.electorOn(c.name, c.locks, OnElected(func(context.Context, Term) { elected <- c })).Elector
		all = append(all, c)
		time.Sleep(time.Second) // candidates are in the order of their clocks
	}
	testutil.Receive(w.t, elected)
	for _, n := range w.nodes {
		n.Slow(oneWay)
		n.SlowReplies(oneWay)
	}
	time.Sleep(ttl)
	return all, elected
}

// queues are who waits, by node; one that was not needed for a refusal may not have heard of it.
func (w *world) queues() (all [][]string) {
	w.t.Helper()
	for _, n := range w.nodes {
		var waits []string
		for _, key := range n.Keys() {
			if !strings.Contains(key, "}w:"+core.Key("cron-leader")+"") {
				continue
			}
			got, err := n.Exec("ZRANGE", key, 0, -1)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, wait := range got.([]any) {
				waits = append(waits, wait.(string))
			}
		}
		all = append(all, waits)
	}
	return all
}

// The next in line leads within two round trips of the release: the nodes tell it, and it asks.
func TestSuccession(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		for name, leave := range map[string]func(c *candidate, ctx context.Context) error{
			"resigned": func(c *candidate, ctx context.Context) error { return c.Resign(ctx) },
			"closed":   func(c *candidate, ctx context.Context) error { return c.Close(ctx) },
		} {
			t.Run(fmt.Sprintf("%s, %d nodes", name, nodes), func(t *testing.T) {
				bubble(t, nodes, func(t *testing.T, w *world) {
					all, elected := w.line(6)
					for i, c := range all[:5] {
						left := make(chan error, 1)
						start := time.Now()
						go func() { left <- leave(c, t.Context()) }()
						next := testutil.Receive(t, elected)
						if took := time.Since(start); next != all[i+1] || took > 4*oneWay {
							t.Fatalf("%s leads after %s, %v after its release", next.name, c.name, took)
						}
						if !next.leads() {
							t.Error("it was told before it leads")
						}
						if err := <-left; err != nil {
							t.Error(err)
						}
					}
				})
			})
		}
	}
}

// A leader that dies is succeeded when its lease ends.
func TestSuccessionOfTheDead(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks, cable := w.wired()
		dead := w.electorOn("dead", locks)
		leader(t, taking, dead)
		all := []*candidate{w.elector("a"), w.elector("b")}
		time.Sleep(ttl)
		cable.Cut()
		defer cable.Mend()
		cut := time.Now()
		leader(t, ttl+taking, all...)
		if took := time.Since(cut); took > ttl+100*time.Millisecond {
			t.Errorf("somebody leads after %v", took)
		}
	})
}

// A follower that is closed goes at once, also while nodes do not answer, and leaves neither goroutines nor a place
// in the queues.
func TestFollowerCloses(t *testing.T) {
	serialBubble(t, 3, func(t *testing.T, w *world) {
		w.line(2)
		locks := w.locks()
		waiting := func(n int) bool {
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
		var goroutines int
		for i := range 10 {
			f := w.electorOn("f", locks)
			time.Sleep(5 * time.Second)
			if !waiting(2) {
				t.Errorf("waiting: %q", w.queues())
			}
			if i == 8 {
				for _, n := range w.nodes {
					n.Hang()
				}
			}
			start := time.Now()
			if err := f.Close(t.Context()); err != nil || time.Since(start) != 0 {
				t.Errorf("closed after %v: %v", time.Since(start), err)
			}
			for _, n := range w.nodes {
				n.Up()
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if !waiting(1) {
				t.Errorf("still waiting: %q", w.queues())
			}
			if i == 0 {
				goroutines = runtime.NumGoroutine()
			}
		}
		if more := runtime.NumGoroutine() - goroutines; more > 5 {
			t.Errorf("%d more goroutines", more)
		}
	})
}

// Followers do nothing while somebody leads, but to ask now and then.
func TestFollowersAreQuiet(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		const followers, lasts = 20, time.Minute
		w.line(followers + 1)
		calls := func() (n int) {
			for _, node := range w.nodes {
				n += node.Calls()["EVALSHA"]
			}
			return n
		}
		before := calls()
		time.Sleep(lasts)
		if each := float64(calls()-before) / followers / float64(len(w.nodes)) / lasts.Seconds(); each > 1.6 {
			t.Errorf("%.2f requests of a follower to a node each second", each)
		}
	})
}
