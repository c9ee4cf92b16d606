package leader_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// An Elector answers questions about its own process without a request, in any state of the nodes. A leader that gets
// no replies stops leading by its own clock.
func TestAnswersLocally(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		w.nodes[0].Hang()
		w.nodes[1].Hang()
		w.nodes[2].Down()
		defer w.each((*testutil.Node).Up)

		start := time.Now()
		cancelled, cancel := context.WithCancel(w.Context())
		cancel()
		isErr(w.T, "the leader, just after the nodes went", l.IsLeader(cancelled), nil)

		term := l.mustTerm(w.T)
		if term.FencingToken == 0 || term.Group != "group" || term.Since.After(start) {
			w.Errorf("its term is %+v", term)
		}
		h, err := l.Leader(cancelled)
		if want := (leader.Holder{Candidate: l.name, Term: term.FencingToken, Since: term.Since.UTC()}); h != want || err != nil {
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

		await(w.T, ttl, "the leader has stopped", func() bool { return !l.leads() })
	})
}

// Groups are independent of each other, whatever their names are. The default name of a candidate is the name of its
// host.
func TestGroupsApart(t *testing.T) {
	host, _ := os.Hostname()
	bubble(t, 1, func(w *world) {
		for _, name := range []string{"a", "A", "a/b", "a%2Fb", "..", " ", "{a}", "\x00é", string(make([]byte, 600)), string(make([]byte, 601)), "leader/a"} {
			e, err := leader.New(w.first.Locker, name)
			if err != nil {
				w.Fatalf("%q: %v", name, err)
			}
			w.Cleanup(func() { e.Close(context.Background()) })
			await(w.T, taking, "it leads", func() bool { return e.IsLeader(w.Context()) == nil })
			term, _ := e.Term()
			if h, err := e.Leader(w.Context()); err != nil || h.Candidate != host || term.Group != name {
				w.Errorf("%q: %+v, %v, want %q; it leads group %q", name, h, err, host, term.Group)
			}
		}
	})
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := leader.New(nil, "", nil, leader.OnElected(nil), leader.WithCandidate(""))
	_, long := leader.New(nil, "group", leader.WithCandidate(strings.Repeat("i", 254)))
	_, unreadable := leader.New(nil, "\xff", leader.WithCandidate("\xfe"))
	err = errors.Join(err, long, unreadable)
	for _, want := range []string{"locker is nil", "group name is empty", "option is nil", "OnElected is nil",
		"candidate name has 0 bytes", "candidate name has 254 bytes", `the group name "\xff" is not valid UTF-8`, `the candidate name "\xfe" is not valid UTF-8`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
}

// MaxWait, MaxHold and other options of the Locker do not end terms, and do not keep candidates from waiting. Two
// Electors on one Locker are separate candidates.
func TestOptionsOfTheLocker(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var log logbook.Book
		first := w.first.Replica(core.MaxWait(100*time.Millisecond), core.MaxHold(time.Second), core.Detached(false),
			core.Retention(time.Millisecond), core.WithLogger(log.Logger()))
		a, b := w.candidateOn("0", first), w.candidateOn("1", first)
		l := w.leader(taking, a, b)

		term := l.mustTerm(w.T)
		if each := w.requests(time.Minute); each > 3.5 {
			w.Errorf("%.1f requests to a node each second", each)
		}
		if got := l.mustTerm(w.T); got.FencingToken != term.FencingToken {
			w.Error("the term did not last")
		}

		w.known(l, a, b)
		log.Want(w.T, 0, "no leader can be elected")
		l.Resign()
		await(w.T, taking, "the other one leads", others(l, a, b)[0].leads)
	})
}

// If the Locker of an Elector is closed, the Elector loses its term, logs that, and ends.
func TestLockerIsClosed(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var log logbook.Book
		locks := w.first.Replica(core.WithLogger(log.Logger()))
		a, b := w.candidateOn("a", locks), w.candidateOn("b", locks)
		w.leader(taking, a, b)

		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := locks.Close(ctx); err == nil {
			w.Error("the Locker's Close waited for nothing")
		}

		synctest.Wait()
		if len(leaders(a, b)) > 0 {
			w.Error("somebody leads without a Locker")
		}

		time.Sleep(taking)
		log.Want(w.T, 2, "the Locker is closed") // once for each Elector
		for _, c := range []*candidate{a, b} {
			isErr(w.T, "its health", c.Check(w.Context()), core.ErrClosed)
			start := time.Now()
			if err := c.Close(w.Context()); err != nil || time.Since(start) != 0 {
				w.Errorf("Close, after %v: %v", time.Since(start), err)
			}
		}

		w.leader(taking, w.candidate("next")) // the key was released
	})
}

// In a process that has never reached a quorum, Check fails after a TTL, and one log line says that no leader can be
// elected.
func TestWithoutNodes(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var log logbook.Book
		locks := w.first.Replica(core.WithLogger(log.Logger()))
		w.each((*testutil.Node).Down)
		c := w.candidateOn("c", locks)
		// The limit includes the timeouts of the first and the last failed round.
		await(w.T, ttl+5*time.Second, "the probe fails", func() bool { return c.Check(w.Context()) != nil })
		isErr(w.T, "without nodes", c.Check(w.Context()), core.ErrUnavailable)

		time.Sleep(5 * time.Minute)
		isErr(w.T, "leading without nodes", c.IsLeader(w.Context()), leader.ErrNotLeader)
		log.Want(w.T, 1, "no leader can be elected")

		w.each((*testutil.Node).Up)
		await(w.T, 5*time.Second, "the probe passes", func() bool { return c.Check(w.Context()) == nil })
		w.leader(taking, c)
	})
}

// known checks that all candidates say that l leads.
func (w *world) known(l *candidate, all ...*candidate) {
	w.Helper()
	term := l.mustTerm(w.T)
	for _, c := range all {
		h, err := c.Leader(w.Context())
		if err != nil || h.Candidate != l.name || h.Term != term.FencingToken || h.Since.Sub(term.Since).Abs() > time.Second {
			w.Errorf("%s says that %+v leads, %v; want %s in term %d since %v", c.name, h, err, l.name, term.FencingToken, term.Since)
		}
	}
}

// Other candidates show a leader that has resigned until its work has ended; the leader itself does not. They show a
// dead leader until its lease has ended.
func TestLeaderThatHasGone(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()

		_, leave := w.enter(l)
		l.Resign()
		time.Sleep(time.Minute)

		if h, err := f.Leader(w.Context()); err != nil || h.Candidate != l.name {
			w.Errorf("while it finishes its work: %+v, %v", h, err)
		}
		h, err := l.Leader(w.Context())
		if isErr(w.T, "by itself", err, leader.ErrNoLeader); h != (leader.Holder{}) {
			w.Errorf("%+v", h)
		}

		leave()
		await(w.T, taking, "the other one leads", f.leads)

		newcomer := w.candidate("new")
		w.known(f, l, newcomer)
		isErr(w.T, "Close", newcomer.Close(w.Context()), nil)

		f.locks.Link.Kill()
		died := time.Now()
		for !l.leads() {
			h, err := l.Leader(w.Context())
			if err != nil {
				isErr(w.T, "after the end of its lease", err, leader.ErrNoLeader)
			}
			if since := time.Since(died); since > ttl+100*time.Millisecond {
				w.Fatalf("%v after its death: %+v, %v", since, h, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		w.known(l, l)
	})
}

// If the nodes do not agree on the token of a term, the leader is shown without its term.
func TestNodesDisagreeOnTheTerm(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		key := w.first.KeyPrefix() + "{0}r:" + core.Key("leader", "group")

		for i, n := range w.nodes {
			stored, _ := n.Exec("GET", key)
			text, granted := stored.(string)
			r, err := testutil.ParseResource(text)
			if err != nil {
				w.Fatal(err)
			}
			if !granted { // this node has not granted the key yet
				continue
			}
			r.Counter += 1 + int64(i)
			if _, err := n.Exec("SET", key, r.String(), "KEEPTTL"); err != nil {
				w.Fatal(err)
			}
		}

		if h, err := f.Leader(w.Context()); h != (leader.Holder{Candidate: l.name}) || err != nil {
			w.Errorf("%+v leads, %v", h, err)
		}
	})
}
