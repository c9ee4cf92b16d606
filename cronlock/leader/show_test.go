package leader_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// known demands that all of them say that l leads.
func (w *world) known(l *candidate, all ...*candidate) {
	w.Helper()
	term := l.mustTerm(w.T)
	for _, c := range all {
		h, err := c.Leader(w.Context())
		if err != nil || h.Identity != l.name || h.Term != term.FencingToken || h.Since.Sub(term.Since).Abs() > time.Second {
			w.Errorf("%s says that %+v leads, %v; want %s in term %d since %v", c.name, h, err, l.name, term.FencingToken, term.Since)
		}
	}
}

// Everybody can say who leads: whoever was elected, however the term before it ended, and who has just come.
func TestLeaderIsVisible(t *testing.T) {
	for _, nodes := range []int{1, 3, 5} {
		bubbleIn(t, nodes, func(w *world) {
			all := w.candidates(3)
			for i := range 6 {
				l := w.leader(ttl+taking, all...)
				time.Sleep(3 * time.Second) // one that was cut off has found its nodes again
				newcomer := w.candidate("new")
				w.known(l, append(all, newcomer)...)
				isErr(w.T, "Close", newcomer.Close(w.Context()), nil)
				if i%2 == 0 {
					l.mustResign(w.T)
					continue
				}
				l.locks.Link.Cut()
				await(w.T, ttl+taking, "the next one leads", func() bool { return !l.leads() && len(leaders(all...)) > 0 })
				l.locks.Link.Mend()
			}
		})
	}
}

// bubbleIn is bubble in a subtest for a number of nodes.
func bubbleIn(t *testing.T, nodes int, f func(w *world)) {
	t.Helper()
	t.Run(map[int]string{1: "one node", 3: "three nodes", 5: "five nodes"}[nodes], func(t *testing.T) { bubble(t, nodes, f) })
}

// A leader stays visible for as long as it leads, also where nodes forget, one after the other.
func TestLeaderStaysVisible(t *testing.T) {
	race.Campaign(t)
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		for i := range 20 {
			time.Sleep(97 * time.Second)
			w.known(l, f)
			if i%7 == 5 {
				w.nodes[i%3].RestartEmpty()
			}
		}
	})
}

// What nodes keep of terms and of requests does not grow.
func TestRequestsExpire(t *testing.T) {
	race.Campaign(t)
	bubble(t, 1, func(w *world) {
		all := w.candidates(2)
		turns := func() int {
			for range 60 {
				l := w.leader(taking, all...)
				time.Sleep(time.Minute)
				isErr(w.T, "asking", others(l, all...)[0].RequestResign(w.Context()), nil)
				await(w.T, 4*time.Second, "it leads no more", func() bool { return !l.leads() })
			}
			return len(w.nodes[0].Keys())
		}
		for range 2 { // records outlive their retention by two hours
			turns()
		}
		before := turns()
		turns()
		if now := turns(); now > before+5 || before < 10 {
			w.Errorf("%d keys, %d after two hours more", before, now)
		}
	})
}

// Nobody leads: then there is no leader to show, nor to ask.
func TestNoLeaderIsKnown(t *testing.T) {
	for name, lose := range map[string]func(w *world) *candidate{
		"it has resigned itself": func(w *world) *candidate {
			c := w.candidate("alone")
			w.leader(taking, c)
			c.mustResign(w.T)
			return c
		},
		"it resigns": func(w *world) *candidate {
			c := w.candidate("alone")
			w.leader(taking, c)
			w.enter(c)
			isErr(w.T, "asking itself", c.RequestResign(w.Context()), nil)
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				c := lose(w)
				h, err := c.Leader(w.Context())
				isErr(w.T, "Leader", err, leader.ErrNoLeader)
				if h != (leader.Holder{}) {
					w.Errorf("%+v", h)
				}
				isErr(w.T, "RequestResign", c.RequestResign(w.Context()), leader.ErrNoLeader)
			})
		})
	}
}

// A leader that resigns is shown to others until its work has ended, one that dies until its lease has.
func TestLeaderThatHasGone(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		_, leave := w.enter(l)
		resigned := during(func() error { return l.Resign(w.Context()) })
		time.Sleep(time.Minute)
		if h, err := f.Leader(w.Context()); err != nil || h.Identity != l.name {
			w.Errorf("while it finishes its work: %+v, %v", h, err)
		}
		leave()
		isErr(w.T, "Resign", testutil.Receive(w.T, resigned), nil)
		await(w.T, taking, "the other one leads", f.leads)
		w.known(f, l)

		isErr(w.T, "Close", l.Close(w.Context()), nil)
		shown := w.candidate("shown")
		f.locks.Link.Kill()
		died := time.Now()
		for !shown.leads() {
			h, err := shown.Leader(w.Context())
			if err != nil {
				isErr(w.T, "after the end of its lease", err, leader.ErrNoLeader)
			} else if h.Identity == f.name && time.Since(died) > ttl+100*time.Millisecond {
				w.Fatalf("%v after its death: %+v", time.Since(died), h)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(died); d > ttl+taking {
			w.Errorf("it took %v", d)
		}
		w.known(shown, shown)
	})
}

// Where no quorum answers, who leads cannot be said; the answer does not take for ever.
func TestLeaderWithoutNodes(t *testing.T) {
	bubble(t, 3, func(w *world) {
		_, f := w.pair()
		time.Sleep(ttl)
		f.locks.Link.Cut()
		defer f.locks.Link.Mend()
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := f.Leader(ctx)
		isErr(w.T, "Leader, with little time", err, context.DeadlineExceeded)
		if d := time.Since(start); d > 10*time.Millisecond {
			w.Errorf("it took %v", d)
		}
		start = time.Now()
		_, err = f.Leader(w.Context())
		isErr(w.T, "Leader", err, core.ErrUnavailable)
		isErr(w.T, "RequestResign", f.RequestResign(w.Context()), core.ErrUnavailable)
		if d := time.Since(start); d > 3*time.Second {
			w.Errorf("it took %v", d)
		}
	})
}

// Anybody may ask the leader to resign, itself included; it finishes its work first, and then the next one leads.
func TestRequestResign(t *testing.T) {
	for by, asks := range map[string]func(l, f *candidate) *candidate{
		"a follower": func(_, f *candidate) *candidate { return f },
		"the leader": func(l, _ *candidate) *candidate { return l },
	} {
		t.Run(by, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				l, f := w.pair()
				time.Sleep(time.Minute)
				work, leave := w.enter(l)
				c := asks(l, f)
				isErr(w.T, "asking", c.RequestResign(w.Context()), nil)
				await(w.T, 4*time.Second, "it leads no more", func() bool { return !l.leads() })
				time.Sleep(3 * ttl)
				if work.Err() != nil || f.leads() {
					w.Error("it did not wait for the work")
				}
				leave()
				await(w.T, taking, "the other one leads", f.leads)
				time.Sleep(time.Minute)
				if !f.leads() {
					w.Error("the request has outlived the term")
				}
				l.checkCalls(w.T)
				if got := l.called(); len(got) != 2 || !strings.HasSuffix(got[1], "false") {
					w.Errorf("callbacks %v", got)
				}
			})
		})
	}
}

// A request stands while one node has it.
func TestRequestOnOneNode(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		time.Sleep(time.Second)
		isErr(w.T, "asking", f.RequestResign(w.Context()), nil)
		for _, n := range w.nodes {
			await(w.T, 1500*time.Millisecond, "the node has it", func() bool { return len(keysOf(n, "r", "cron-leader-resign")) > 0 })
		}
		if !l.leads() {
			w.Fatal("it has looked already")
		}
		for _, n := range w.nodes[1:] {
			for _, key := range keysOf(n, "r", "cron-leader-resign") {
				if _, err := n.Exec("DEL", key); err != nil {
					w.Fatal(err)
				}
			}
		}
		await(w.T, 4*time.Second, "it leads no more", func() bool { return !l.leads() })
	})
}

// Several may ask at once, or again; whoever asks while nobody leads is told so.
func TestRequestsToResign(t *testing.T) {
	bubble(t, 3, func(w *world) {
		all := w.candidates(5)
		var log logbook.Book
		l := w.leader(taking, all...)
		shy := w.candidateOn("shy", w.first.Replica(core.WithLogger(log.Logger())))
		time.Sleep(time.Second)
		_, leave := w.enter(l)
		var asked []chan error
		for _, c := range others(l, all...) {
			for range 2 {
				asked = append(asked, during(func() error { return c.RequestResign(w.Context()) }))
			}
		}
		for _, done := range asked {
			isErr(w.T, "asking", testutil.Receive(w.T, done), nil)
		}
		time.Sleep(5 * time.Second)
		isErr(w.T, "asking again, while it still works", shy.RequestResign(w.Context()), nil)
		leave()
		next := w.leader(taking, append(all, shy)...)
		for next != shy { // in the order in which they came
			time.Sleep(time.Second)
			isErr(w.T, "asking", l.RequestResign(w.Context()), nil)
			next = w.leader(5*time.Second+taking, others(next, append(all, shy)...)...)
		}
		time.Sleep(time.Second)
		isErr(w.T, "asking", l.RequestResign(w.Context()), nil)
		await(w.T, 4*time.Second, "it leads no more", func() bool { return !shy.leads() })
		synctest.Wait()
		if n := log.Count("asks this one to resign"); n != 1 || log.Count("by="+l.name) != 1 {
			w.Errorf("logged %d times: %s", n, log.Lines())
		}
	})
}
