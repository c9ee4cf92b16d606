package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

// ttl is that of the Lockers of these tests, taking how long candidates take to see that the key is free, and away how long
// one that resigned leaves the field to others.
const ttl, taking, away = 10 * time.Second, 2 * time.Second, 3 * time.Second

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
	bubbleNow(t, nodes, f)
}

// bubbleNow is for tests that measure the whole process, or have one bubble after the other.
func bubbleNow(t *testing.T, nodes int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		first := locktest.NewOn(t, testutil.NewNodes(t, nodes))
		f(&world{t, first.Nodes, first})
	})
}

// heal ends the faults of all nodes.
func (w *world) heal() {
	for _, n := range w.nodes {
		n.Up()
	}
}

// A candidate is an Elector with a process of its own, and the callbacks that it made.
type candidate struct {
	*leader.Elector
	name  string
	locks *locktest.Locker

	mu       sync.Mutex
	calls    []string // "elected 7", "lost 7 <nil>"
	busy     bool     // a callback is under way
	together bool     // two were
}

var quiet = slog.New(slog.DiscardHandler)

// candidate starts one. The options' callbacks replace those that keep the calls.
func (w *world) candidate(name string, opts ...leader.Option) *candidate {
	w.Helper()
	return w.candidateOn(name, w.first.Replica(), opts...)
}

// candidates starts so many.
func (w *world) candidates(n int) (all []*candidate) {
	w.Helper()
	for i := range n {
		all = append(all, w.candidate(fmt.Sprint(i)))
	}
	return all
}

// candidateOn is candidate on a given Locker.
func (w *world) candidateOn(name string, locks *locktest.Locker, opts ...leader.Option) *candidate {
	w.Helper()
	c := &candidate{name: name, locks: locks}
	e, err := leader.New(locks.Locker, "group", append([]leader.Option{leader.WithIdentity(name),
		leader.OnElected(func(_ context.Context, t leader.Term) { c.elected(t) }), leader.OnLost(c.lost)}, opts...)...)
	if err != nil {
		w.Fatal(err)
	}
	c.Elector = e
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			w.Errorf("closing elector %s: %v", name, err)
		}
	})
	return c
}

func (c *candidate) note(call string) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.together = c.together || c.busy
	c.busy = true
	c.calls = append(c.calls, call)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy = false
	}
}

func (c *candidate) elected(t leader.Term) { c.note(fmt.Sprintf("elected %d", t.FencingToken))() }

func (c *candidate) lost(t leader.Term, err error) {
	c.note(fmt.Sprintf("lost %d %v", t.FencingToken, err != nil))()
}

// called returns the callbacks so far.
func (c *candidate) called() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.calls...)
}

// checkCalls demands that the callbacks came in turn, one term after the other, with growing tokens.
func (c *candidate) checkCalls(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.together {
		t.Errorf("%s: two callbacks at once", c.name)
	}
	var last uint64
	for i, call := range c.calls {
		var what string
		var token uint64
		fmt.Sscanf(call, "%s %d", &what, &token)
		if i%2 == 0 && (what != "elected" || token <= last) || i%2 == 1 && (what != "lost" || token != last) {
			t.Errorf("%s: callbacks out of turn: %v", c.name, c.calls)
			return
		}
		last = token
	}
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

// mustResign has it resign, within the time of the test.
func (c *candidate) mustResign(t *testing.T) {
	t.Helper()
	if err := c.Resign(t.Context()); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
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
	all := w.candidates(2)
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

// ongoing fails if something has come of what should still be under way.
func ongoing(t *testing.T, what string, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Errorf("%s returned: %v", what, err)
	default:
	}
}

// during runs f on a goroutine of its own, and tells what it returned.
func during(f func() error) (done chan error) {
	done = make(chan error, 1)
	go func() { done <- f() }()
	return done
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

// keysOf are the keys of a node that have to do with a kind of keys of core.Key.
func keysOf(n *testutil.Node, letter, kind string) (keys []string) {
	for _, key := range n.Keys() {
		if strings.Contains(key, "}"+letter+":"+core.Key(kind)+"/") {
			keys = append(keys, key)
		}
	}
	return keys
}
