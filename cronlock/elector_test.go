package cronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// ttl is that of the Lockers of these tests, and taking how long candidates take to see that the key is free.
const ttl, taking = 10 * time.Second, 2 * time.Second

// What an Elector knows about itself it says without asking anybody, whatever state the nodes are in.
func TestElectorAnswersLocally(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.elector("a"), w.elector("b")
		l := leader(t, taking, a, b)
		f := others(l, a, b)[0]
		for _, n := range w.nodes[:2] {
			n.Hang()
		}
		w.nodes[2].Down()
		defer func() {
			for _, n := range w.nodes {
				n.Up()
			}
		}()
		start := time.Now()
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.IsLeader(cancelled); err != nil {
			t.Errorf("the leader, just after the nodes went: %v", err)
		}
		term, err := l.Term()
		if err != nil || term.FencingToken == 0 || term.Group != "group" || !term.ValidUntil().After(time.Now()) {
			t.Errorf("its term is %+v until %v, %v", term, term.ValidUntil(), err)
		}
		if err := f.IsLeader(cancelled); !errors.Is(err, ErrNotLeader) {
			t.Errorf("the follower: %v", err)
		}
		if _, err := f.Term(); !errors.Is(err, ErrNotLeader) {
			t.Errorf("the follower's term: %v", err)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("the answers took %v", d)
		}
		// Nobody can renew, so the leader stops leading by its own clock.
		await(t, ttl, "the leader has stopped", func() bool { return !l.leads() })
		if late := time.Since(term.ValidUntil()); late < 0 || late > 10*time.Millisecond {
			t.Errorf("it stopped leading %v after the end of its validity", late)
		}
		synctest.Wait()
		if got := l.called(); !slices.ContainsFunc(got, func(s string) bool { return s == fmt.Sprintf("lost %d true", term.FencingToken) }) {
			t.Errorf("callbacks %v", got)
		}
	})
}

// A leader that is cut off does not lead any more when the next one begins to, which is soon.
func TestElectorLeaderCutOff(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var all []*candidate
		cables := map[*candidate]*testutil.Link{}
		for i := range 3 {
			locks, k := w.wired()
			c := w.electorOn(fmt.Sprint(i), locks)
			cables[c] = k
			all = append(all, c)
		}
		for range 5 {
			old := leader(t, ttl+taking, all...)
			term, err := old.Term()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			cables[old].Cut()
			cut := time.Now()
			await(t, ttl+taking, "another one leads", func() bool {
				who := leaders(all...)
				if len(who) > 1 {
					t.Fatalf("%d leaders", len(who))
				}
				return len(who) == 1 && who[0] != old
			})
			next, err := leaders(all...)[0].Term()
			if err != nil || next.FencingToken <= term.FencingToken {
				t.Errorf("token %d after %d, %v", next.FencingToken, term.FencingToken, err)
			}
			if d := time.Since(cut); d > ttl+taking {
				t.Errorf("it took %v", d)
			}
			cables[old].Mend()
		}
		synctest.Wait()
		for _, c := range all {
			checkCalls(t, c)
		}
	})
}

// checkCalls demands that the callbacks came in turn, one term after the other, with growing tokens.
func checkCalls(t *testing.T, c *candidate) {
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

// Electors of one process, even of one Locker, are candidates of their own, as are those on one host.
func TestElectorsOfOneProcess(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		locks := w.locks()
		a, b := w.electorOn("a", locks), w.electorOn("b", locks)
		for range 4 {
			l := leader(t, taking, a, b)
			time.Sleep(2 * ttl)
			if who := leaders(a, b); len(who) != 1 || who[0] != l {
				t.Fatalf("%d leaders, or another one than before", len(who))
			}
			if err := l.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if l.leads() {
				t.Error("it leads after it has resigned")
			}
			if next := leader(t, taking, a, b); next == l {
				t.Error("the one that resigned leads again, although there is another")
			}
		}
	})
}

// Groups know nothing of each other, whatever they are called.
func TestElectorGroupsApart(t *testing.T) {
	names := []string{"a", "A", "a/b", "a%2Fb", "b", "..", " ", "{a}", "\x00\xff", "a\n", "é",
		string(make([]byte, 600)), string(make([]byte, 601)), "cron-leader/a"}
	bubble(t, 1, func(t *testing.T, w *world) {
		locks := w.locks()
		ctx := t.Context()
		for _, name := range names {
			e, err := NewElector(locks, name, WithLogger(quiet))
			if err != nil {
				t.Fatalf("%q: %v", name, err)
			}
			defer e.Close(context.WithoutCancel(ctx))
			await(t, taking, fmt.Sprintf("%q leads", name), func() bool { return e.IsLeader(ctx) == nil })
			if term, err := e.Term(); err != nil || term.Group != name {
				t.Errorf("%q leads group %q, %v", name, term.Group, err)
			}
		}
	})
}

func TestNewElectorNamesEveryFault(t *testing.T) {
	_, err := NewElector(nil, "", nil, OnElected(nil), WithLogger(nil))
	for _, want := range []string{"locks is nil", "group's name is empty", "option is nil", "callback is nil", "logger is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if _, err := NewElector(nil, "group", OnLost(nil)); err == nil || !strings.Contains(err.Error(), "callback is nil") {
		t.Errorf("OnLost(nil): %v", err)
	}
}

// A Cron whose elector could not be made must not run without one.
func TestCronWithNilElector(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		if _, err := New(w.locks(), scheduler(t), "service", WithElector(nil)); err == nil || !strings.Contains(err.Error(), "elector is nil") {
			t.Errorf("error %v", err)
		}
	})
}
