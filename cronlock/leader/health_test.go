package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil"
)

// sick waits until the probe fails, and says how long that took.
func (w *world) sick(c *candidate, limit time.Duration) time.Duration {
	w.Helper()
	return await(w.T, limit, "the probe fails", func() bool { return c.Check(w.Context()) != nil })
}

// healthy waits until the probe fails no more.
func (w *world) healthy(c *candidate, limit time.Duration) time.Duration {
	w.Helper()
	return await(w.T, limit, "the probe fails no more", func() bool { return c.Check(w.Context()) == nil })
}

// The probe fails when no quorum has answered for as long as the TTL, and no more when one does, whether the process leads
// or not.
func TestHealth(t *testing.T) {
	for role, of := range map[string]func(l, f *candidate) (c, other *candidate){
		"leader":   func(l, f *candidate) (c, other *candidate) { return l, f },
		"follower": func(l, f *candidate) (c, other *candidate) { return f, l },
	} {
		t.Run(role, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				c, other := of(w.pair())
				for range 3 {
					time.Sleep(time.Minute)
					isErr(w.T, "in peace", c.Check(w.Context()), nil)
					c.locks.Link.Cut()
					if d := w.sick(c, 3*ttl); d < ttl/3 || d > ttl+5*time.Second {
						w.Errorf("it took %v until the probe failed", d)
					}
					time.Sleep(time.Minute)
					if err := c.Check(w.Context()); !errors.Is(err, core.ErrUnavailable) && !errors.Is(err, core.ErrLost) {
						w.Errorf("cut off: %v", err)
					}
					isErr(w.T, "the other one", other.Check(w.Context()), nil)
					c.locks.Link.Mend()
					w.healthy(c, 5*time.Second)
				}
			})
		})
	}
}

// A minority of nodes is no trouble, nor is a short outage.
func TestHealthOfAQuorum(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		check := func() {
			w.Helper()
			isErr(w.T, "the leader", l.Check(w.Context()), nil)
			isErr(w.T, "the follower", f.Check(w.Context()), nil)
		}
		for _, n := range w.nodes {
			n.Down()
			for range 60 {
				time.Sleep(time.Second)
				check()
			}
			n.Up()
			time.Sleep(time.Minute)
		}
		for range 10 {
			f.locks.Link.Cut()
			time.Sleep(ttl / 2)
			check()
			f.locks.Link.Mend()
			time.Sleep(3 * time.Second)
			check()
		}
	})
}

// From its very start a process that reaches no quorum is no healthy one, after a TTL.
func TestHealthWithoutNodes(t *testing.T) {
	bubble(t, 3, func(w *world) {
		locks := w.first.Replica()
		locks.Link.Cut()
		c := w.candidateOn("c", locks)
		w.sick(c, ttl+5*time.Second) // the first round that fails has to time out, and the last one
		isErr(w.T, "without nodes", c.Check(w.Context()), core.ErrUnavailable)
		locks.Link.Mend()
		w.healthy(c, 5*time.Second)
		w.leader(taking, c)
	})
}

// An election goes on, whatever made a round of it fail.
func TestElectionGoesOn(t *testing.T) {
	for fault, begin := range map[string]func(w *world, all []*candidate){
		"nodes down":      func(w *world, _ []*candidate) { each(w.nodes, (*testutil.Node).Down) },
		"nodes hang":      func(w *world, _ []*candidate) { each(w.nodes, (*testutil.Node).Hang) },
		"nodes emptied":   func(w *world, _ []*candidate) { each(w.nodes, (*testutil.Node).RestartEmpty) },
		"nodes flushed":   func(w *world, _ []*candidate) { each(w.nodes, (*testutil.Node).Flush) },
		"nodes restarted": func(w *world, _ []*candidate) { each(w.nodes, (*testutil.Node).Restart) },
		"scripts refused": func(w *world, _ []*candidate) {
			each(w.nodes, func(n *testutil.Node) { n.Refuse("EVALSHA", "NOPERM no permission") })
		},
		"replies lost": func(_ *world, all []*candidate) {
			for _, c := range all {
				c.locks.Link.Lose(1000)
			}
		},
	} {
		t.Run(fault, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				all := w.candidates(3)
				w.leader(taking, all...)
				begin(w, all)
				time.Sleep(time.Minute)
				w.heal()
				each(w.nodes, func(n *testutil.Node) { n.Refuse("EVALSHA", "") })
				for _, c := range all {
					c.locks.Link.Lose(0)
				}
				time.Sleep(2 * time.Minute)
				l := w.leader(0, all...)
				time.Sleep(time.Minute)
				w.known(l, all...)
				isErr(w.T, "its health", l.Check(w.Context()), nil)
			})
		})
	}
}

func each(nodes []*testutil.Node, f func(*testutil.Node)) {
	for _, n := range nodes {
		f(n)
	}
}

// Somebody has recorded the leadership as done, which nobody ought to do: that ends with the record's retention.
func TestElectionAfterARecord(t *testing.T) {
	bubble(t, 3, func(w *world) {
		lease, err := w.first.TryAcquire(w.Context(), core.Key("cron-leader", "group"), core.Retention(3*time.Minute))
		if err != nil {
			w.Fatal(err)
		}
		isErr(w.T, "completing", lease.Complete(w.Context(), nil), nil)
		all := w.candidates(3)
		time.Sleep(time.Minute)
		isErr(w.T, "their health", all[0].Check(w.Context()), core.ErrDone)
		time.Sleep(2*time.Minute + taking)
		w.leader(0, all...)
		isErr(w.T, "their health", all[0].Check(w.Context()), nil)
	})
}

// Wait returns when this process leads, at once if it does, and not for another's sake.
func TestWait(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		isErr(w.T, "the leader", l.Wait(w.Context()), nil)
		waits := during(func() error { return f.Wait(w.Context()) })
		time.Sleep(time.Minute)
		ongoing(w.T, "the follower's Wait", waits)
		why := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, why)
		defer cancel()
		isErr(w.T, "the follower, with little time", f.Wait(ctx), why)

		_, leave := w.enter(l)
		resigned := during(func() error { return l.Resign(w.Context()) })
		synctest.Wait()
		again := during(func() error { return l.Wait(w.Context()) })
		time.Sleep(time.Minute)
		ongoing(w.T, "the Wait of one that resigns", again)
		leave()
		isErr(w.T, "Resign", testutil.Receive(w.T, resigned), nil)
		isErr(w.T, "the follower's Wait", testutil.Receive(w.T, waits), nil)
		if !f.leads() {
			w.Error("it was told before it leads")
		}
		closed := during(func() error { time.Sleep(ttl); return l.Close(w.Context()) })
		isErr(w.T, "the Wait of one that is closed", testutil.Receive(w.T, again), core.ErrClosed)
		isErr(w.T, "Close", testutil.Receive(w.T, closed), nil)
	})
}

type contextKey struct{}

// The context of work has the caller's values, and ends with the caller's, with leave and with the term.
func TestEnter(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		ctx, leave, err := f.Enter(w.Context())
		isErr(w.T, "a follower", err, leader.ErrNotLeader)
		if leave(); ctx != w.Context() {
			w.Error("the context of one that is refused is not its own")
		}
		why := errors.New("the caller has gone")
		caller, end := context.WithCancelCause(context.WithValue(w.Context(), contextKey{}, 1))
		first, leaveFirst, err := l.Enter(caller)
		isErr(w.T, "the leader", err, nil)
		second, leaveSecond := w.enter(l)
		if first.Value(contextKey{}) != 1 {
			w.Error("the caller's values are lost")
		}
		end(why)
		if isErr(w.T, "the end of the caller", context.Cause(first), why); first.Err() == nil || second.Err() != nil {
			w.Errorf("contexts: %v, %v", first.Err(), second.Err())
		}
		leaveFirst()
		leaveFirst() // once more, which counts for nobody else
		resigned := during(func() error { return l.Resign(w.Context()) })
		time.Sleep(time.Minute)
		ongoing(w.T, "Resign", resigned)
		leaveSecond()
		isErr(w.T, "Resign", testutil.Receive(w.T, resigned), nil)
		isErr(w.T, "the context of who has left", second.Err(), context.Canceled)
	})
}
