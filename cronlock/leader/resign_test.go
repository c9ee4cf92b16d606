package leader_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil"
)

// Nobody else leads before the work of the one that leaves has ended.
func TestResignWaitsForWork(t *testing.T) {
	for way, leave := range map[string]func(c *candidate, ctx context.Context) error{
		"resigned": func(c *candidate, ctx context.Context) error { return c.Resign(ctx) },
		"closed":   func(c *candidate, ctx context.Context) error { return c.Close(ctx) },
	} {
		t.Run(way, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				l, f := w.pair()
				w.waitsForWork(l, f, func() error { return leave(l, w.Context()) })
			})
		})
	}
}

func (w *world) waitsForWork(l, f *candidate, end func() error) {
	w.Helper()
	work, leave := w.enter(l)
	resigned := during(end)
	synctest.Wait()
	if l.leads() {
		w.Error("it leads while it resigns")
	}
	time.Sleep(3 * ttl) // as long as the work takes
	ongoing(w.T, "it", resigned)
	if f.leads() {
		w.Error("the next leader did not wait for the work")
	}
	if _, _, err := l.Enter(w.Context()); !errors.Is(err, leader.ErrNotLeader) {
		w.Errorf("Enter after Resign was called: %v", err)
	}
	if err := work.Err(); err != nil {
		w.Errorf("the work was told to stop: %v", context.Cause(work))
	}
	leave()
	isErr(w.T, "leaving", testutil.Receive(w.T, resigned), nil)
	await(w.T, taking, "the other one leads", f.leads)
}

// A Resign that cannot wait tells work to stop, and leaves the leadership to nobody before it has.
func TestResignCannotWait(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		work, leave := w.enter(l)
		why := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, why)
		defer cancel()
		start := time.Now()
		if err := l.Resign(ctx); !errors.Is(err, why) || time.Since(start) != time.Second {
			w.Errorf("after %v: %v", time.Since(start), err)
		}
		synctest.Wait()
		if work.Err() == nil {
			w.Error("the work goes on")
		}
		isErr(w.T, "the work's end", context.Cause(work), leader.ErrLost)
		time.Sleep(3 * ttl)
		if f.leads() || l.leads() {
			w.Error("somebody leads, although the work has not ended")
		}
		again := during(func() error { return l.Resign(w.Context()) }) // it can be waited for again
		ongoing(w.T, "the second Resign", again)
		leave()
		isErr(w.T, "the second Resign", testutil.Receive(w.T, again), nil)
		await(w.T, taking, "the other one leads", f.leads)
		l.checkCalls(w.T)
		if got := l.called(); len(got) != 2 {
			w.Errorf("callbacks %v", got)
		}
	})
}

// Where a process does not lead, there is nothing to give up.
func TestResignWithoutLeading(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		for _, n := range w.nodes {
			n.Hang() // nobody is asked
		}
		start := time.Now()
		if err := f.Resign(w.Context()); err != nil || time.Since(start) != 0 {
			w.Errorf("after %v: %v", time.Since(start), err)
		}
		w.heal()
		if !l.leads() {
			w.Error("the leader has stopped leading")
		}
	})
}

// The one that resigned leads again if nobody else does, after it has left the field to others for a while.
func TestReelection(t *testing.T) {
	bubble(t, 3, func(w *world) {
		c := w.candidate("alone")
		w.leader(taking, c)
		for range 3 {
			c.mustResign(w.T)
			if d := await(w.T, away+taking, "it leads again", c.leads); d < away {
				w.Errorf("it leads again after %v", d)
			}
		}
		synctest.Wait()
		c.checkCalls(w.T)
		if n := len(c.called()); n != 7 {
			w.Errorf("callbacks %v", c.called())
		}
	})
}

// Resign and Close may be called by anybody, at any time, any number of times.
func TestResignAndCloseAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		bubbleNow(t, 3, func(w *world) {
			c := w.candidate("c")
			if i%2 == 0 { // else it may be about to be elected
				w.leader(taking, c)
			}
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() { isErr(w.T, "Resign", c.Resign(w.Context()), nil) })
				wg.Go(func() {
					c.Term()
					isErr(w.T, "Close", c.Close(w.Context()), nil)
					isErr(w.T, "after Close", c.IsLeader(w.Context()), leader.ErrNotLeader)
				})
			}
			wg.Wait()
			time.Sleep(time.Minute)
			isErr(w.T, "a minute after Close", c.IsLeader(w.Context()), leader.ErrNotLeader)
			isErr(w.T, "Resign after Close", c.Resign(w.Context()), nil)
			c.checkCalls(w.T)
			if n := len(c.called()); n%2 != 0 {
				w.Errorf("callbacks %v", c.called())
			}
		})
	}
}

// Close waits for work and for callbacks, then another one leads and this one never again.
func TestClose(t *testing.T) {
	bubble(t, 3, func(w *world) {
		release := make(chan struct{})
		a := w.candidate("a", leader.OnLost(func(leader.Term, error) { <-release }))
		w.leader(taking, a)
		b := w.candidate("b")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		isErr(w.T, "Close, while OnLost runs", a.Close(ctx), context.DeadlineExceeded)
		await(w.T, taking, "the other one leads", b.leads) // no work of a is left, whatever its callback does
		close(release)
		isErr(w.T, "Close", a.Close(w.Context()), nil)
		isErr(w.T, "Close of the other", b.Close(w.Context()), nil)
		isErr(w.T, "its health", b.Check(w.Context()), core.ErrClosed)
		isErr(w.T, "waiting", b.Wait(w.Context()), core.ErrClosed)
		time.Sleep(5 * ttl)
		if len(leaders(a, b)) > 0 {
			w.Error("somebody leads after Close")
		}
	})
}

// atGrant calls f when the leadership was granted, before Acquire returns.
func atGrant(f func()) core.Option {
	return core.WithObserver(core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
		if op.Kind != core.OpAcquire || op.Name != "group" {
			return ctx, nil
		}
		return ctx, func(o core.Outcome) {
			if o.Err == nil {
				f()
			}
		}
	}})
}

// An Elector that is closed just when the nodes have granted it the leadership does not take it up.
func TestCloseAtTheMomentOfElection(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var c *candidate
		ready, closed := make(chan struct{}), make(chan error, 1)
		locks := w.first.Replica(atGrant(func() {
			<-ready
			go func() { closed <- c.Close(w.Context()) }()
			synctest.Wait()
		}))
		c = w.candidateOn("c", locks,
			leader.OnElected(func(context.Context, leader.Term) { w.Error("elected after Close") }),
			leader.OnLost(func(leader.Term, error) { w.Error("OnLost without OnElected") }))
		close(ready)
		isErr(w.T, "Close", testutil.Receive(w.T, closed), nil)
		w.leader(taking, w.candidate("next")) // the key was given back
	})
}

// Work that ignores the loss of its term holds up its own process only: that one does not campaign before it returned, and
// its health says so.
func TestWorkThatIgnoresTheLoss(t *testing.T) {
	bubble(t, 3, func(w *world) {
		first, other := w.pair()
		work, leave := w.enter(first)
		first.locks.Link.Cut()
		await(w.T, ttl, "the leadership is lost", func() bool { return !first.leads() })
		first.locks.Link.Mend()
		synctest.Wait()
		if work.Err() == nil {
			w.Error("the work was not told to stop")
		}
		isErr(w.T, "the work's end", context.Cause(work), leader.ErrLost, core.ErrLost)
		await(w.T, ttl+taking, "the other one leads", other.leads)
		if got := first.called(); len(got) != 2 {
			w.Errorf("OnLost waited for the work: %v", got)
		}
		other.mustResign(w.T)
		time.Sleep(away + taking)
		if first.leads() || !other.leads() {
			w.Error("the first campaigns while its work goes on")
		}
		isErr(w.T, "its health", first.Check(w.Context()), leader.ErrLost)
		first.mustResign(w.T) // it does not lead, so this waits for nothing
		leave()
		other.mustResign(w.T)
		await(w.T, taking, "the first leads again", first.leads)
		isErr(w.T, "its health", first.Check(w.Context()), nil)
	})
}

// A leadership that the nodes have forgotten, and given to another, is lost as well. Who has lost it does not stand again
// while its work goes on.
func TestLeadershipForgotten(t *testing.T) {
	bubble(t, 1, func(w *world) {
		first := w.candidate("first")
		w.leader(taking, first)
		work, leave := w.enter(first)
		for _, key := range keysOf(w.nodes[0], "r", "cron-leader") {
			if _, err := w.nodes[0].Exec("DEL", key); err != nil {
				w.Fatal(err)
			}
		}
		other := w.candidate("other") // takes it
		await(w.T, 2*ttl, "the leadership is lost", func() bool { return !first.leads() })
		synctest.Wait()
		isErr(w.T, "the work's end", context.Cause(work), leader.ErrLost, core.ErrLost)
		isErr(w.T, "Close", other.Close(w.Context()), nil)
		time.Sleep(3 * ttl)
		if first.leads() {
			w.Error("it leads again while work of its lost term goes on")
		}
		leave()
		await(w.T, taking, "it leads again", first.leads)
	})
}
