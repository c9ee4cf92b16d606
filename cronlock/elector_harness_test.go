package cronlock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil"
)

// ttl is that of the Lockers of these tests, taking how long candidates take to see that the key is free, and afterResign
// how long one that resigned leaves the field to others.
const ttl, taking, afterResign = 10 * time.Second, 2 * time.Second, 3 * time.Second

// A candidate is a leader.Elector with the callbacks that it made.
type candidate struct {
	*leader.Elector
	name  string
	locks *core.Locker

	mu       sync.Mutex
	calls    []string // "elected 7", "lost 7 <nil>"
	terms    []leader.Term
	busy     bool // a callback is under way
	together bool // two were
}

// elector starts a candidate of its own process, whose Locker nobody else has.
func (w *world) elector(name string, opts ...leader.Option) *candidate {
	w.t.Helper()
	return w.electorOn(name, w.locks(), opts...)
}

// electorOn is elector on a given Locker. The options' callbacks replace those that keep the calls.
func (w *world) electorOn(name string, locks *core.Locker, opts ...leader.Option) *candidate {
	w.t.Helper()
	c := &candidate{name: name, locks: locks}
	e, err := leader.New(locks, "group", append([]leader.Option{
		leader.OnElected(func(_ context.Context, t leader.Term) { c.elected(t) }), leader.OnLost(c.lost)}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	c.Elector = e
	w.ends = append(w.ends, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			w.t.Errorf("closing elector %s: %v", name, err)
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

func (c *candidate) elected(t leader.Term) {
	c.mu.Lock()
	c.terms = append(c.terms, t)
	c.mu.Unlock()
	c.note(fmt.Sprintf("elected %d", t.FencingToken))()
}

func (c *candidate) lost(t leader.Term, err error) {
	c.note(fmt.Sprintf("lost %d %v", t.FencingToken, err != nil))()
}

// called returns the callbacks so far.
func (c *candidate) called() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.calls...)
}

func (c *candidate) leads() bool { return c.IsLeader(context.Background()) == nil }

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

// awaitLeader waits until one of them leads.
func awaitLeader(t *testing.T, limit time.Duration, all ...*candidate) *candidate {
	t.Helper()
	await(t, limit, "somebody leads", func() bool { return len(leaders(all...)) > 0 })
	return leaders(all...)[0]
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

// wired is a Locker whose process can be cut off from all nodes.
func (w *world) wired(opts ...core.Option) (*core.Locker, *testutil.Link) {
	w.t.Helper()
	k := &testutil.Link{}
	return w.locksVia(k, opts...), k
}

// A member is a replica whose Cron has an Elector, and that can be cut off.
type member struct {
	*replica
	*candidate
	cable *testutil.Link
}

// members starts so many, each with the same job, and returns the one that leads first.
func (w *world) members(n int, crontab string, f func(m *member, ctx context.Context) error, opts ...Option) (*member, []*member) {
	w.t.Helper()
	var all []*member
	for i := range n {
		name := fmt.Sprint(i)
		locks, k := w.wired()
		m := &member{candidate: w.electorOn(name, locks), cable: k}
		m.replica = w.replicaOn(name, locks, append([]Option{WithElector(m.Elector)}, opts...)...)
		m.replica.job(gocron.CronJob(crontab, true), func(ctx context.Context) error {
			if f == nil {
				return nil
			}
			return f(m, ctx)
		})
		m.sched.Start()
		all = append(all, m)
		if i == 0 {
			awaitLeader(w.t, taking, m.candidate)
		}
	}
	return all[0], all
}

// atHead returns the members that lead.
func atHead(all []*member) (who []*member) {
	for _, m := range all {
		if m.leads() {
			who = append(who, m)
		}
	}
	return who
}

// id names the member.
func (m *member) id() string { return m.candidate.name }
