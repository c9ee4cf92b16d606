package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func init() { logging.Disable() } // go-redis prints each failed dial

// ttl is that of the Lockers of these tests. taking is how long candidates take to see that the key is free, and away how
// long a process that resigned leaves the field to others.
const ttl, taking, away = 10 * time.Second, 2 * time.Second, 3 * time.Second

// key is that of the leadership of the group.
var key = core.Key("cron-leader", "group")

// A world is a set of nodes and the candidates on it, in a bubble of synctest.
type world struct {
	*testing.T
	nodes []*testutil.Node
	first *locktest.Locker
}

// bubble runs f in a bubble, beside those of other tests.
func bubble(t *testing.T, nodes int, f func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, nodes: testutil.NewNodes(t, nodes)}
		w.first = locktest.NewOn(t, w.nodes)
		f(w)
	})
}

// each is done to all nodes.
func (w *world) each(f func(*testutil.Node)) {
	for _, n := range w.nodes {
		f(n)
	}
}

// A candidate is an Elector with a process of its own.
type candidate struct {
	*leader.Elector
	name  string
	locks *locktest.Locker
}

// candidate starts one.
func (w *world) candidate(name string) *candidate {
	w.Helper()
	return w.candidateOn(name, w.first.Replica())
}

// candidateOn is candidate on a given Locker.
func (w *world) candidateOn(name string, locks *locktest.Locker) *candidate {
	w.Helper()
	return w.electedDoes(name, locks, func(*candidate) {})
}

// electedDoes starts a candidate on a Locker whose OnElected does f, and lasts as long as its term.
func (w *world) electedDoes(name string, locks *locktest.Locker, f func(*candidate)) *candidate {
	w.Helper()
	c, ready := &candidate{name: name, locks: locks}, make(chan struct{})
	e, err := leader.New(locks.Locker, "group", leader.WithCandidate(name), leader.OnElected(func(ctx context.Context, _ leader.Term) {
		<-ready
		f(c)
		<-ctx.Done()
	}))
	if err != nil {
		w.Fatal(err)
	}
	c.Elector = e
	close(ready)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			w.Errorf("closing elector %s: %v", name, err)
		}
	})
	return c
}

func (c *candidate) leads() bool { return c.IsLeader(context.Background()) == nil }

// mustTerm is that of one that leads.
func (c *candidate) mustTerm(t *testing.T) leader.Term {
	t.Helper()
	term, err := c.Term()
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return term
}

// leaders returns who leads now.
func leaders(all ...*candidate) (who []*candidate) {
	for _, c := range all {
		if c.leads() {
			who = append(who, c)
		}
	}
	return who
}

// await waits, in fake time, until is holds, and says how long that took. It fails the test after the limit.
func await(t *testing.T, limit time.Duration, what string, is func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !is() {
		if time.Since(start) > limit {
			t.Fatalf("after %v: still waiting until %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// leader waits until one of them leads, the only one.
func (w *world) leader(limit time.Duration, all ...*candidate) *candidate {
	w.Helper()
	await(w.T, limit, "somebody leads", func() bool { return len(leaders(all...)) > 0 })
	who := leaders(all...)
	if len(who) != 1 {
		w.Fatalf("%d leaders", len(who))
	}
	return who[0]
}

// pair starts two candidates, and says which of them leads.
func (w *world) pair() (l, f *candidate) {
	w.Helper()
	all := []*candidate{w.candidate("0"), w.candidate("1")}
	l = w.leader(taking, all...)
	return l, others(l, all...)[0]
}

// others returns all but one.
func others(but *candidate, all ...*candidate) (rest []*candidate) {
	for _, c := range all {
		if c != but {
			rest = append(rest, c)
		}
	}
	return rest
}

// enter is Enter of one that leads.
func (w *world) enter(c *candidate) (work context.Context, leave func()) {
	w.Helper()
	work, leave, err := c.Enter(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(leave) // or a test that fails would wait for its work
	return work, leave
}

// isErr demands that err matches all of the wanted.
func isErr(t *testing.T, what string, err error, wanted ...error) {
	t.Helper()
	for _, want := range wanted {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}
