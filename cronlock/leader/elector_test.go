package leader_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/logbook"
)

// What an Elector knows about itself it says without asking anybody, whatever state the nodes are in.
func TestAnswersLocally(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		w.nodes[0].Hang()
		w.nodes[1].Hang()
		w.nodes[2].Down()
		defer w.heal()
		start := time.Now()
		cancelled, cancel := context.WithCancel(w.Context())
		cancel()
		isErr(w.T, "the leader, just after the nodes went", l.IsLeader(cancelled), nil)
		term := l.mustTerm(w.T)
		if term.FencingToken == 0 || term.Group != "group" || !term.ValidUntil().After(time.Now()) || term.Since.After(start) {
			w.Errorf("its term is %+v until %v", term, term.ValidUntil())
		}
		h, err := l.Leader(cancelled)
		if want := (leader.Holder{Identity: l.name, Term: term.FencingToken, Since: term.Since.UTC()}); h != want || err != nil {
			w.Errorf("the leader about itself: %+v, %v, want %+v", h, err, want)
		}
		isErr(w.T, "its health", l.Check(cancelled), nil)
		isErr(w.T, "the follower", f.IsLeader(cancelled), leader.ErrNotLeader)
		_, err = f.Term()
		isErr(w.T, "the follower's term", err, leader.ErrNotLeader)
		isErr(w.T, "the follower's health", f.Check(cancelled), nil)
		if d := time.Since(start); d != 0 {
			w.Errorf("the answers took %v", d)
		}
		stopsByItself(w, l, term)
	})
}

// stopsByItself demands that a leader which nobody can hear stops leading by its own clock.
func stopsByItself(w *world, l *candidate, term leader.Term) {
	w.Helper()
	await(w.T, ttl, "the leader has stopped", func() bool { return !l.leads() })
	if late := time.Since(term.ValidUntil()); late < 0 || late > 10*time.Millisecond {
		w.Errorf("it stopped leading %v after the end of its validity", late)
	}
	synctest.Wait()
	if got := l.called(); !slices.Contains(got, fmt.Sprintf("lost %d true", term.FencingToken)) {
		w.Errorf("callbacks %v", got)
	}
}

// A leader that is cut off does not lead any more when the next one begins to, which is soon.
func TestLeaderCutOff(t *testing.T) {
	bubble(t, 3, func(w *world) {
		all := w.candidates(3)
		for range 5 {
			old := w.leader(ttl+taking, all...)
			term := old.mustTerm(w.T)
			time.Sleep(3 * time.Second)
			old.locks.Link.Cut()
			cut := time.Now()
			await(w.T, ttl+taking, "it leads no more", func() bool { return !old.leads() })
			next := w.leader(ttl+taking, all...)
			if got := next.mustTerm(w.T).FencingToken; next == old || got <= term.FencingToken {
				w.Errorf("%s leads after %s, token %d after %d", next.name, old.name, got, term.FencingToken)
			}
			if d := time.Since(cut); d > ttl+taking {
				w.Errorf("it took %v", d)
			}
			old.locks.Link.Mend()
		}
		synctest.Wait()
		for _, c := range all {
			c.checkCalls(w.T)
		}
	})
}

// Electors of one process, even of one Locker, are candidates of their own, as are those on one host.
func TestElectorsOfOneProcess(t *testing.T) {
	bubble(t, 3, func(w *world) {
		a, b := w.candidateOn("a", w.first), w.candidateOn("b", w.first)
		for range 4 {
			l := w.leader(taking, a, b)
			time.Sleep(2 * ttl)
			if who := w.leader(0, a, b); who != l {
				w.Fatal("another leader than before")
			}
			l.mustResign(w.T)
			if l.leads() {
				w.Error("it leads after it has resigned")
			}
			if next := w.leader(taking, a, b); next == l {
				w.Error("the one that resigned leads again, although there is another")
			}
		}
	})
}

// Groups know nothing of each other, whatever they are called.
func TestGroupsApart(t *testing.T) {
	names := []string{"a", "A", "a/b", "a%2Fb", "b", "..", " ", "{a}", "\x00\xff", "a\n", "é",
		string(make([]byte, 600)), string(make([]byte, 601)), "cron-leader/a"}
	bubble(t, 1, func(w *world) {
		for _, name := range names {
			e, err := leader.New(w.first.Locker, name)
			if err != nil {
				w.Fatalf("%q: %v", name, err)
			}
			w.Cleanup(func() { e.Close(context.Background()) })
			await(w.T, taking, fmt.Sprintf("%q leads", name), func() bool { return e.IsLeader(w.Context()) == nil })
			if term, err := e.Term(); err != nil || term.Group != name {
				w.Errorf("%q leads group %q, %v", name, term.Group, err)
			}
		}
	})
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := leader.New(nil, "", nil, leader.OnElected(nil), leader.WithIdentity(""))
	for _, want := range []string{"locker is nil", "group's name is empty", "option is nil", "callback is nil", "identity has 0 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	_, err = leader.New(nil, "group", leader.OnLost(nil), leader.WithIdentity(strings.Repeat("i", 254)))
	for _, want := range []string{"callback is nil", "identity has 254 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if got := (leader.Term{}).ValidUntil(); !got.IsZero() {
		t.Errorf("no term is valid until %v", got)
	}
}

// What a Locker has for its other calls does not end terms, nor keep candidates from waiting.
func TestOptionsOfTheLocker(t *testing.T) {
	for name, opts := range map[string][]core.Option{
		"short waits":    {core.MaxWait(100 * time.Millisecond)},
		"short holds":    {core.MaxHold(time.Second)},
		"attached":       {core.Detached(false)},
		"short memories": {core.Retention(time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				var log logbook.Book
				first := w.first.Replica(opts...)
				all := []*candidate{w.candidateOn("0", first.Replica(core.WithLogger(log.Logger()))), w.candidateOn("1", first.Replica(core.WithLogger(log.Logger())))}
				l := w.leader(taking, all...)
				term := l.mustTerm(w.T)
				if each := w.requests(time.Minute); each > 3.5 {
					w.Errorf("%.1f requests to a node each second", each)
				}
				if got := l.mustTerm(w.T); got.FencingToken != term.FencingToken {
					w.Error("the term did not last")
				}
				f := others(l, all...)[0]
				if h, err := f.Leader(w.Context()); err != nil || h.Identity != l.name {
					w.Errorf("%+v, %v", h, err)
				}
				if n := log.Count("no leader can be elected"); n > 0 {
					w.Errorf("logged %d times that nobody can be elected, while one leads", n)
				}
				isErr(w.T, "asking", f.RequestResign(w.Context()), nil)
				await(w.T, 4*time.Second+taking, "the other one leads", f.leads)
			})
		})
	}
}

// By default a leader shows the name of its host.
func TestIdentityIsTheHost(t *testing.T) {
	bubble(t, 1, func(w *world) {
		e, err := leader.New(w.first.Locker, "group")
		if err != nil {
			w.Fatal(err)
		}
		defer e.Close(context.Background())
		isErr(w.T, "waiting", e.Wait(w.Context()), nil)
		host, _ := os.Hostname()
		if h, err := e.Leader(w.Context()); err != nil || h.Identity != host {
			w.Errorf("%+v, %v, want %q", h, err, host)
		}
	})
}
