package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
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
	nodes  []*testutil.Node
	first  *locktest.Locker
	events locktest.Events // of all candidates
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
		w := &world{T: t, nodes: testutil.NewNodes(t, nodes)}
		w.first = locktest.NewOn(t, w.nodes, core.WithObserver(w.events.Observer()))
		f(w)
	})
}

// each is done to all nodes.
func (w *world) each(f func(*testutil.Node)) {
	for _, n := range w.nodes {
		f(n)
	}
}

// heal ends the faults of all nodes.
func (w *world) heal() { w.each((*testutil.Node).Up) }

// A candidate is an Elector with a process of its own, and the calls of its OnElected.
type candidate struct {
	*leader.Elector
	name    string
	locks   *locktest.Locker
	lingers sync.WaitGroup // which OnElected waits for after the end of its context

	mu    sync.Mutex
	terms []reign
	wrong bool // a term began before the last had ended, or with a smaller token
}

// A reign is a call of OnElected.
type reign struct {
	token uint64
	lease *core.Lease
	over  bool
	cause error // of the end of its context
}

var quiet = slog.New(slog.DiscardHandler)

// candidate starts one.
func (w *world) candidate(name string) *candidate {
	w.Helper()
	return w.candidateOn(name, w.first.Replica())
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
func (w *world) candidateOn(name string, locks *locktest.Locker) *candidate {
	w.Helper()
	return w.electedDoes(name, locks, func(*candidate, context.Context, leader.Term) {})
}

// electedDoes starts a candidate on a Locker whose OnElected does f, and lasts as long as its term.
func (w *world) electedDoes(name string, locks *locktest.Locker, f func(c *candidate, ctx context.Context, t leader.Term)) *candidate {
	w.Helper()
	c, ready := &candidate{name: name, locks: locks}, make(chan struct{})
	e, err := leader.New(locks.Locker, "group", leader.WithCandidate(name), leader.OnElected(func(ctx context.Context, t leader.Term) {
		<-ready
		defer c.begin(ctx, t)()
		f(c, ctx, t)
		<-ctx.Done()
		c.lingers.Wait()
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
		if c.mu.Lock(); c.wrong {
			w.Errorf("%s: terms out of turn: %+v", name, c.terms)
		}
		c.mu.Unlock()
	})
	return c
}

// begin notes that a call of OnElected has begun, and end that it has ended.
func (c *candidate) begin(ctx context.Context, t leader.Term) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := len(c.terms)
	c.wrong = c.wrong || i > 0 && (!c.terms[i-1].over || c.terms[i-1].token >= t.FencingToken)
	lease, _ := core.FromContext(ctx)
	c.terms = append(c.terms, reign{token: t.FencingToken, lease: lease})
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.terms[i].over, c.terms[i].cause = true, context.Cause(ctx)
	}
}

// reigns returns the terms so far.
func (c *candidate) reigns() []reign {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.terms)
}

// last is the latest term.
func (c *candidate) last() reign {
	all := c.reigns()
	return all[len(all)-1]
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

// revoke ends the term of whoever leads, as an operator does.
func (w *world) revoke() {
	w.Helper()
	state, err := w.first.Inspect(w.Context(), key)
	if err != nil || state.Holder == nil {
		w.Fatalf("nobody to revoke: %v", err)
	}
	if _, err := admin.Revoke(w.Context(), w.first.Locker, key, state.Holder.Token); err != nil {
		w.Fatal(err)
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

// busies are the two kinds of work that a term waits for. Each begins with a leader, and lasts until it is ended.
var busies = map[string]func(w *world, c *candidate) (end func()){
	"work": func(w *world, c *candidate) func() { _, leave := w.enter(c); return leave },
	"OnElected": func(w *world, c *candidate) func() {
		c.lingers.Add(1)
		end := sync.OnceFunc(c.lingers.Done)
		w.Cleanup(end)
		return end
	},
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
