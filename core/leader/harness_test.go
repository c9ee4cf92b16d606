package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func init() { logging.Disable() } // go-redis would print each failed dial

// ttl is the TTL of the Lockers in these tests. taking is the longest time that candidates take to notice that the key
// is free. away is the time for which a process that has resigned does not stand for election.
const ttl, taking, away = 10 * time.Second, 2 * time.Second, 3 * time.Second

// key is the key of the group's leadership.
var key = core.Key("leader", "group")

// A world has the nodes of the candidates in a bubble.
type world struct {
	*testing.T
	nodes []*testutil.Node
	first *locktest.Locker
}

// bubble runs f in a bubble, in parallel with other tests.
func bubble(t *testing.T, nodes int, f func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, nodes: testutil.NewNodes(t, nodes)}
		w.first = locktest.NewOn(t, w.nodes)
		f(w)
	})
}

// each calls f for all nodes.
func (w *world) each(f func(*testutil.Node)) {
	for _, n := range w.nodes {
		f(n)
	}
}

// A candidate is an Elector with its Locker.
type candidate struct {
	*leader.Elector
	name  string
	locks *locktest.Locker
}

// candidate starts a candidate in a process of its own.
func (w *world) candidate(name string) *candidate {
	w.Helper()
	return w.candidateOn(name, w.first.Replica())
}

// candidateOn starts a candidate on a given Locker.
func (w *world) candidateOn(name string, locks *locktest.Locker) *candidate {
	w.Helper()
	return w.electedDoes(name, locks, func(*candidate) {})
}

// electedDoes starts a candidate on a given Locker. Its OnElected calls f, and returns when the term ends.
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

// mustTerm returns the term of a candidate that leads.
func (c *candidate) mustTerm(t *testing.T) leader.Term {
	t.Helper()
	term, err := c.Term()
	if err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	return term
}

// leaders returns the candidates that lead now.
func leaders(all ...*candidate) (who []*candidate) {
	for _, c := range all {
		if c.leads() {
			who = append(who, c)
		}
	}
	return who
}

// await waits, in the time of the bubble, until is returns true, and returns how long that took. After the limit it
// fails the test.
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

// leader waits until one of the candidates leads, and returns it. It fails the test if several lead.
func (w *world) leader(limit time.Duration, all ...*candidate) *candidate {
	w.Helper()
	await(w.T, limit, "somebody leads", func() bool { return len(leaders(all...)) > 0 })
	who := leaders(all...)
	if len(who) != 1 {
		w.Fatalf("%d leaders", len(who))
	}
	return who[0]
}

// pair starts two candidates. It returns the leader and the follower.
func (w *world) pair() (l, f *candidate) {
	w.Helper()
	all := []*candidate{w.candidate("0"), w.candidate("1")}
	l = w.leader(taking, all...)
	return l, others(l, all...)[0]
}

// others returns all candidates except one.
func others(but *candidate, all ...*candidate) (rest []*candidate) {
	for _, c := range all {
		if c != but {
			rest = append(rest, c)
		}
	}
	return rest
}

// enter calls Enter of a candidate that leads.
func (w *world) enter(c *candidate) (work context.Context, leave func()) {
	w.Helper()
	work, leave, err := c.Enter(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(leave) // without this, Close of a failed test would wait for the work
	return work, leave
}

// isErr checks that err matches all wanted errors.
func isErr(t *testing.T, what string, err error, wanted ...error) {
	t.Helper()
	for _, want := range wanted {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}
