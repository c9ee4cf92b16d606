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

// The context of OnElected ends with the term, in whatever way that ends, and says why. A defer runs once per term.
func TestElectedContext(t *testing.T) {
	for way, tt := range map[string]struct {
		event string
		end   func(w *world, c *candidate)
	}{
		"resigned": {"leader_resigned", func(_ *world, c *candidate) { c.Resign() }},
		"closed":   {"leader_resigned", func(w *world, c *candidate) { isErr(w.T, "Close", c.Close(w.Context()), nil) }},
		"cut off":  {"leader_lost", func(_ *world, c *candidate) { c.locks.Link.Cut() }},
		"revoked":  {"leader_lost", func(w *world, _ *candidate) { w.revoke() }},
	} {
		t.Run(way, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				c := w.candidate("c")
				w.leader(taking, c)
				time.Sleep(time.Minute)
				if r := c.last(); r.over || r.token != c.mustTerm(w.T).FencingToken {
					w.Fatalf("the context ended before the term: %+v", r)
				}
				tt.end(w, c)
				await(w.T, ttl, "the term is over", func() bool { return c.reigns()[0].over })
				why := c.reigns()[0].cause
				if lost := tt.event == "leader_lost"; errors.Is(why, core.ErrLost) != lost || errors.Is(why, leader.ErrNotLeader) == lost {
					w.Errorf("the cause is %v", why)
				}
				synctest.Wait()
				if w.events.Count("cronlock "+tt.event) != 1 || w.events.Count("cronlock leader_elected") != 1 {
					w.Errorf("events: %v", w.events.Counts())
				}
				c.locks.Link.Mend()
			})
		})
	}
}

// OnElected may ask the Elector anything, and resign. A process that resigned leads again if no other does, after it has
// left the field to others for a while.
func TestElectedAsks(t *testing.T) {
	bubble(t, 3, func(w *world) {
		results := make(chan error, 10)
		w.electedDoes("c", w.first, func(c *candidate, ctx context.Context, _ leader.Term) {
			_, err := c.Term()
			_, lerr := c.Leader(ctx)
			_, leave, eerr := c.Enter(ctx)
			leave()
			results <- errors.Join(err, lerr, eerr, c.IsLeader(ctx), c.Check(ctx))
			if c.Resign(); c.leads() || ctx.Err() == nil {
				w.Error("it leads after it has resigned")
			}
		})
		isErr(w.T, "within OnElected", testutil.Receive(w.T, results), nil)
		for range 3 {
			start := time.Now()
			isErr(w.T, "within OnElected", testutil.Receive(w.T, results), nil)
			if d := time.Since(start); d < away || d > away+taking {
				w.Errorf("it leads again after %v", d)
			}
		}
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
		if f.Resign(); !l.leads() { // there is nothing to give up
			w.Error("the leader has stopped leading")
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
		leaveFirst() // a second call lets nobody else out
		l.Resign()
		time.Sleep(time.Minute)
		if f.leads() {
			w.Error("the other one leads while work is inside")
		}
		leaveSecond()
		isErr(w.T, "the context of work that has left", second.Err(), context.Canceled)
		await(w.T, taking, "the other one leads", f.leads)
	})
}

// No other process leads before the work of the one that leaves has ended. Resign does not wait for it, and Close does.
func TestResignAfterWork(t *testing.T) {
	for kind, begin := range busies {
		for way, resign := range map[string]func(c *candidate, ctx context.Context) error{
			"resigned": func(c *candidate, _ context.Context) error { c.Resign(); return nil },
			"closed":   func(c *candidate, ctx context.Context) error { return c.Close(ctx) },
		} {
			t.Run(kind+", "+way, func(t *testing.T) {
				bubble(t, 3, func(w *world) {
					l, f := w.pair()
					work, leave := w.enter(l)
					end := begin(w, l)
					done := make(chan error, 1)
					go func() { done <- resign(l, w.Context()) }()
					if synctest.Wait(); l.leads() || (len(done) == 1) != (way == "resigned") {
						w.Error("it leads, or Resign waits, or Close does not")
					}
					if _, _, err := l.Enter(w.Context()); !errors.Is(err, leader.ErrNotLeader) {
						w.Errorf("Enter after Resign was called: %v", err)
					}
					time.Sleep(3 * ttl)
					if work.Err() != nil {
						w.Errorf("the work was told to stop: %v", context.Cause(work))
					}
					leave()
					if time.Sleep(taking); kind == "OnElected" && f.leads() {
						w.Error("the next leader did not wait")
					}
					end()
					isErr(w.T, way, testutil.Receive(w.T, done), nil)
					await(w.T, taking, "the other one leads", f.leads)
				})
			})
		}
	}
}

// A Close that cannot wait tells work to stop, and leaves the leadership to nobody before it has. After that another
// process leads, and this one never again.
func TestClose(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		work, leave := w.enter(l)
		why := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, why)
		defer cancel()
		start := time.Now()
		if err := l.Close(ctx); !errors.Is(err, why) || time.Since(start) != time.Second {
			w.Errorf("after %v: %v", time.Since(start), err)
		}
		if work.Err() == nil {
			w.Error("the work goes on")
		}
		isErr(w.T, "the work's end", context.Cause(work), leader.ErrNotLeader)
		time.Sleep(3 * ttl)
		if f.leads() || l.leads() {
			w.Error("somebody leads, although the work has not ended")
		}
		time.AfterFunc(time.Second, leave)
		isErr(w.T, "the second Close", l.Close(w.Context()), nil)
		for range 20 { // there is nothing left to wait for
			isErr(w.T, "Close without time", l.Close(ctx), nil)
		}
		await(w.T, taking, "the other one leads", f.leads)
		isErr(w.T, "its health", l.Check(w.Context()), core.ErrClosed)
		isErr(w.T, "Close of the other", f.Close(w.Context()), nil)
		time.Sleep(5 * ttl)
		if len(leaders(l, f)) > 0 || len(l.reigns()) != 1 {
			w.Errorf("somebody leads after Close: %+v", l.reigns())
		}
	})
}

// Resign and Close may be called by anybody, at any time, any number of times.
func TestResignAndCloseAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 6 {
		bubbleNow(t, 3, func(w *world) {
			c := w.candidate("c")
			if i%2 == 0 { // else it may be about to be elected
				w.leader(taking, c)
			}
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(c.Resign)
				wg.Go(func() {
					c.Term()
					isErr(w.T, "Close", c.Close(w.Context()), nil)
					isErr(w.T, "after Close", c.IsLeader(w.Context()), leader.ErrNotLeader)
				})
			}
			wg.Wait()
			time.Sleep(time.Minute)
			isErr(w.T, "a minute after Close", c.IsLeader(w.Context()), leader.ErrNotLeader)
			c.Resign()
			for _, r := range c.reigns() {
				if !r.over {
					w.Errorf("terms: %+v", c.reigns())
				}
			}
		})
	}
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
		c = w.candidateOn("c", w.first.Replica(atGrant(func() {
			<-ready
			go func() { closed <- c.Close(w.Context()) }()
			synctest.Wait()
		})))
		close(ready)
		isErr(w.T, "Close", testutil.Receive(w.T, closed), nil)
		if n := len(c.reigns()); n > 0 {
			w.Error("elected after Close")
		}
		w.leader(taking, w.candidate("next")) // the key was given back
	})
}

// Work that ignores the loss of its term holds up its own process only: that one does not campaign before the work has
// ended, and its health says so.
func TestWorkThatIgnoresTheLoss(t *testing.T) {
	for kind, begin := range busies {
		t.Run(kind, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				first, other := w.pair()
				work, leave := w.enter(first)
				end := begin(w, first)
				first.locks.Link.Cut()
				await(w.T, ttl, "the leadership is lost", func() bool { return !first.leads() })
				first.locks.Link.Mend()
				if synctest.Wait(); work.Err() == nil || first.last().over != (kind == "work") {
					w.Error("the work was not told to stop, or OnElected not")
				}
				isErr(w.T, "the work's end", context.Cause(work), core.ErrLost)
				leave()
				await(w.T, ttl+taking, "the other one leads", other.leads)
				other.Resign()
				time.Sleep(away + taking)
				if first.leads() || !other.leads() {
					w.Error("the first campaigns while its work goes on")
				}
				isErr(w.T, "its health", first.Check(w.Context()), core.ErrLost)
				first.Resign() // it does not lead
				end()
				time.Sleep(time.Second)
				isErr(w.T, "its health", first.Check(w.Context()), nil)
				other.Resign()
				await(w.T, taking, "the first leads again", first.leads)
			})
		})
	}
}

// At its first look at the clock after the end of its validity a leader knows that its term is over, even if nothing else
// in the process had time to notice, as after a pause. An OnElected that has returned ended no term.
func TestFirstLookOfALateLeader(t *testing.T) {
	t.Parallel()
	for range 6 {
		bubbleNow(t, 3, func(w *world) {
			elected := make(chan context.Context, 1)
			e, err := leader.New(w.first.Locker, "group", leader.OnElected(func(ctx context.Context, _ leader.Term) { elected <- ctx }))
			if err != nil {
				w.Fatal(err)
			}
			defer e.Close(w.Context())
			notice := testutil.Receive(w.T, elected)
			time.Sleep(ttl)
			work, leave, err := e.Enter(w.Context())
			isErr(w.T, "Enter", err, nil)
			defer leave()
			lease, _ := core.FromContext(notice)
			w.each((*testutil.Node).Down)
			synctest.Wait() // a renewal that was answered before counts
			time.Sleep(time.Until(lease.ValidUntil()))
			leads, worked, told := e.IsLeader(w.Context()), work.Err(), notice.Err()
			isErr(w.T, "at the end of its validity", leads, leader.ErrNotLeader)
			if worked == nil || told == nil {
				w.Errorf("the work's context: %v; that of OnElected: %v", worked, told)
			}
			isErr(w.T, "the work's end", context.Cause(work), core.ErrLost)
			isErr(w.T, "the end of OnElected's context", context.Cause(notice), core.ErrLost)
			_, _, err = e.Enter(w.Context())
			isErr(w.T, "Enter", err, leader.ErrNotLeader)
			w.heal()
		})
	}
}
