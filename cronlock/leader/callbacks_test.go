package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// Callbacks come in turn also when they are slow: the end of a term is told when its begin has been.
func TestSlowCallbacks(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var c *candidate
		slowly := func(call func()) {
			call()
			c.mu.Lock()
			c.busy = true
			c.mu.Unlock()
			time.Sleep(2 * ttl)
			c.mu.Lock()
			c.busy = false
			c.mu.Unlock()
		}
		ready := make(chan struct{})
		c = w.candidate("slow",
			leader.OnElected(func(_ context.Context, term leader.Term) {
				<-ready
				slowly(func() { c.elected(term) })
			}),
			leader.OnLost(func(term leader.Term, err error) { slowly(func() { c.lost(term, err) }) }))
		close(ready)
		for i := range 4 {
			w.leader(time.Minute, c)
			lost := i%2 == 0
			if lost {
				c.locks.Link.Cut()
				await(w.T, ttl, "the term is lost", func() bool { return !c.leads() })
				c.locks.Link.Mend()
			} else {
				c.mustResign(w.T)
			}
			if d := await(w.T, time.Minute, "OnLost is called", func() bool { return len(c.called()) == 2*i+2 }); lost && d == 0 {
				w.Error("OnLost is called with OnElected under way")
			}
		}
		isErr(w.T, "Close", c.Close(w.Context()), nil)
		c.checkCalls(w.T)
		if n := len(c.called()); n != 8 {
			w.Errorf("callbacks %v", c.called())
		}
	})
}

// The context of OnElected ends with the term, whichever way that ends, and says why.
func TestElectedContext(t *testing.T) {
	for way, end := range map[string]func(w *world, c *candidate) error{
		"resigned": func(w *world, c *candidate) error { return c.Resign(w.Context()) },
		"closed":   func(w *world, c *candidate) error { return c.Close(w.Context()) },
		"asked":    func(w *world, c *candidate) error { return c.RequestResign(w.Context()) },
		"lost":     func(_ *world, c *candidate) error { c.locks.Link.Cut(); return nil },
	} {
		t.Run(way, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				ended, lost := make(chan error, 1), make(chan error, 1)
				c := w.candidate("c",
					leader.OnElected(func(ctx context.Context, _ leader.Term) {
						<-ctx.Done()
						ended <- context.Cause(ctx)
					}),
					leader.OnLost(func(_ leader.Term, err error) { lost <- err }))
				w.leader(taking, c)
				time.Sleep(time.Minute)
				if len(ended) > 0 {
					w.Fatal("the context ended before the term")
				}
				isErr(w.T, way, end(w, c), nil)
				told(w.T, way == "lost", testutil.Receive(w.T, ended), testutil.Receive(w.T, lost))
			})
		})
	}
}

// told checks what the context of OnElected ended with, and what OnLost was told.
func told(t *testing.T, lost bool, cause, err error) {
	t.Helper()
	if !errors.Is(cause, leader.ErrLost) || errors.Is(cause, core.ErrLost) != lost {
		t.Errorf("the cause is %v", cause)
	}
	if errors.Is(err, leader.ErrLost) != lost || errors.Is(err, core.ErrLost) != lost || (err != nil) != lost {
		t.Errorf("OnLost is told %v", err)
	}
}

// A callback may ask the Elector anything, and resign or close it with the context that it has.
func TestCallbacksThatCallBack(t *testing.T) {
	for name, tt := range map[string]struct {
		goes, returns bool // it ceases to lead, and leads again
		within        func(ctx context.Context, e *leader.Elector) error
	}{
		"ask": {false, false, func(ctx context.Context, e *leader.Elector) error {
			_, err := e.Term()
			_, lerr := e.Leader(ctx)
			return errors.Join(err, lerr, e.IsLeader(ctx), e.Wait(ctx), e.Check(ctx))
		}},
		"resign": {true, true, func(ctx context.Context, e *leader.Elector) error { return e.Resign(ctx) }},
		"resign with a context of its own": {true, true, func(ctx context.Context, e *leader.Elector) error {
			return e.Resign(context.WithoutCancel(ctx))
		}},
		"ask to resign": {true, true, func(ctx context.Context, e *leader.Elector) error { return e.RequestResign(ctx) }},
		"close":         {true, false, func(ctx context.Context, e *leader.Elector) error { return e.Close(ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				ready, results := make(chan struct{}), make(chan error, 100)
				var c *candidate
				c = w.candidate("c", leader.OnElected(func(ctx context.Context, _ leader.Term) {
					<-ready
					results <- tt.within(ctx, c.Elector)
				}))
				close(ready)
				isErr(w.T, "within OnElected", testutil.Receive(w.T, results), nil)
				if tt.goes {
					await(w.T, taking, "it leads no more", func() bool { return !c.leads() })
				}
				if tt.returns {
					testutil.Receive(w.T, results)
				} else if time.Sleep(time.Minute); c.leads() == tt.goes {
					w.Error("it should lead if it has not left, and only then")
				}
				isErr(w.T, "Close", c.Close(w.Context()), nil)
			})
		})
	}
}

// In OnLost this process does not lead, so that there is nothing to resign, nor to wait for.
func TestResignInOnLost(t *testing.T) {
	for name, end := range map[string]func(w *world, c *candidate) error{
		"resigned": func(w *world, c *candidate) error { return c.Resign(w.Context()) },
		"lost":     func(_ *world, c *candidate) error { c.locks.Link.Cut(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				done, ready := make(chan error, 10), make(chan struct{})
				var c *candidate
				c = w.candidate("c", leader.OnLost(func(leader.Term, error) {
					<-ready
					isErr(w.T, "in OnLost", c.IsLeader(context.Background()), leader.ErrNotLeader)
					done <- c.Resign(context.Background())
				}))
				close(ready)
				w.leader(taking, c)
				isErr(w.T, name, end(w, c), nil)
				isErr(w.T, "Resign within OnLost", testutil.Receive(w.T, done), nil)
				c.locks.Link.Mend()
				w.leader(ttl+away+taking, c)
				isErr(w.T, "Close", c.Close(w.Context()), nil)
			})
		})
	}
}

// Work may resign, too, with its own context: it cannot wait for itself. That is so as well for work of two groups.
func TestWorkThatResigns(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		other, err := leader.New(w.first.Locker, "other group")
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { other.Close(context.Background()) })
		isErr(w.T, "waiting", other.Wait(w.Context()), nil)
		outer, leaveOuter := w.enter(l)
		inner, leave, err := other.Enter(outer)
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(leave)
		resigned := during(func() error { return errors.Join(l.Resign(inner), other.Resign(inner)) })
		isErr(w.T, "work that resigns", testutil.Receive(w.T, resigned), nil)
		time.Sleep(time.Minute)
		if inner.Err() != nil || f.leads() {
			w.Error("the term ended before its work")
		}
		leave()
		leaveOuter()
		await(w.T, taking, "the other one leads", f.leads)
	})
}

// Without nodes nobody is elected, which is logged, once; and when they come, somebody is.
func TestWithoutNodes(t *testing.T) {
	bubble(t, 3, func(w *world) {
		var log logbook.Book
		locks := w.first.Replica(core.WithLogger(log.Logger()))
		for _, n := range w.nodes {
			n.Down()
		}
		c := w.candidateOn("c", locks)
		time.Sleep(5 * time.Minute)
		if c.leads() || len(c.called()) > 0 {
			w.Error("elected without nodes")
		}
		if n := log.Count("no leader can be elected"); n != 1 {
			w.Errorf("logged %d times", n)
		}
		w.heal()
		w.leader(ttl+taking, c)
	})
}

// When the Locker is closed under it, an Elector loses its term, says so, and has ended.
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
		if n := log.Count("the Locker is closed"); n != 2 {
			w.Errorf("logged %d times that it does not campaign any more, want once for each", n)
		}
		for _, c := range []*candidate{a, b} {
			isErr(w.T, "its health", c.Check(w.Context()), core.ErrClosed)
			start := time.Now()
			if err := c.Close(w.Context()); err != nil || time.Since(start) != 0 {
				w.Errorf("Close, after %v: %v", time.Since(start), err)
			}
			c.checkCalls(w.T)
		}
		w.leader(taking, w.candidate("next")) // the key was given back
	})
}
