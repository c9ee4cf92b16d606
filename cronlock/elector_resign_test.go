package cronlock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
)

// openWork is that of a leader that a test ends.
type openWork struct {
	started chan context.Context
	finish  chan struct{}
}

func newWork() *openWork {
	return &openWork{started: make(chan context.Context, 10), finish: make(chan struct{})}
}

// deaf ignores its context.
func (k *openWork) deaf(ctx context.Context) error {
	k.started <- ctx
	<-k.finish
	return nil
}

// Nobody else leads before the runs of the one that resigns have ended, whichever way they were started.
func TestResignWaitsForRuns(t *testing.T) {
	scheduler := map[string]func(t *testing.T, w *world, c *candidate, k *openWork) gocron.Scheduler{
		"Elector.Task": func(t *testing.T, w *world, c *candidate, k *openWork) gocron.Scheduler {
			return w.alone(c, c.Task(k.deaf))
		},
		"Cron WithElector": func(t *testing.T, w *world, c *candidate, k *openWork) gocron.Scheduler {
			r := w.replicaOn(c.name, c.locks, WithElector(c.Elector))
			r.job(gocron.CronJob(secondly, true), k.deaf)
			return r.sched
		},
	}
	for name, start := range scheduler {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				a, b := w.elector("a"), w.elector("b")
				l := leader(t, taking, a, b)
				f := others(l, a, b)[0]
				k := newWork()
				start(t, w, l, k).Start()
				ctx := <-k.started

				resigned := make(chan error, 1)
				go func() { resigned <- l.Resign(t.Context()) }()
				synctest.Wait()
				if l.leads() {
					t.Error("it leads while it resigns")
				}
				time.Sleep(3 * ttl) // as long as the run takes
				select {
				case err := <-resigned:
					t.Errorf("Resign returned before the run did: %v", err)
				default:
				}
				if f.leads() {
					t.Error("the next leader did not wait for the run")
				}
				if len(k.started) > 0 {
					t.Error("a run started after Resign was called")
				}
				if err := ctx.Err(); err != nil {
					t.Errorf("the run was told to stop: %v", context.Cause(ctx))
				}
				close(k.finish)
				if err := <-resigned; err != nil {
					t.Error(err)
				}
				if d := await(t, taking, "the other one leads", f.leads); d > taking {
					t.Errorf("the other one leads after %v", d)
				}
			})
		})
	}
}

// alone is a scheduler that has the Elector and no Cron, with one job that runs every second.
func (w *world) alone(c *candidate, task gocron.Task) gocron.Scheduler {
	w.t.Helper()
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(c.Elector))
	if err != nil {
		w.t.Fatal(err)
	}
	w.ends = append(w.ends, func() { s.Shutdown() })
	_, err = s.NewJob(gocron.CronJob(secondly, true), task, gocron.WithSingletonMode(gocron.LimitModeReschedule))
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// A Resign that cannot wait tells runs to stop, and leaves the leadership to nobody before they have.
func TestResignCannotWait(t *testing.T) {
	t.Parallel()
	for _, cron := range []bool{false, true} {
		serialBubble(t, 3, func(t *testing.T, w *world) {
			a, b := w.elector("a"), w.elector("b")
			l := leader(t, taking, a, b)
			f := others(l, a, b)[0]
			k := newWork()
			if cron {
				r := w.replicaOn(l.name, l.locks, WithElector(l.Elector))
				r.job(gocron.CronJob(secondly, true), k.deaf)
				r.sched.Start()
			} else {
				w.alone(l, l.Task(k.deaf)).Start()
			}
			run := <-k.started

			why := errors.New("no time")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
			defer cancel()
			start := time.Now()
			if err := l.Resign(ctx); !errors.Is(err, why) || time.Since(start) != time.Second {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			synctest.Wait()
			if run.Err() == nil || !errors.Is(context.Cause(run), ErrLeadershipLost) {
				t.Errorf("the run's context ended with cause %v", context.Cause(run))
			}
			time.Sleep(3 * ttl)
			if f.leads() || l.leads() {
				t.Error("somebody leads, although the run has not ended")
			}
			again := make(chan error, 1) // it can be waited for again
			go func() { again <- l.Resign(t.Context()) }()
			synctest.Wait()
			if len(again) > 0 {
				t.Error("the second Resign did not wait")
			}
			close(k.finish)
			if err := <-again; err != nil {
				t.Error(err)
			}
			await(t, taking, "the other one leads", f.leads)
			if got := l.called(); len(got) != 2 || got[1] == got[0] {
				t.Errorf("callbacks %v", got)
			}
		})
	}
}

// Where a process does not lead, there is nothing to give up.
func TestResignWithoutLeading(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.elector("a"), w.elector("b")
		l := leader(t, taking, a, b)
		f := others(l, a, b)[0]
		for _, n := range w.nodes {
			n.Hang() // nobody is asked
		}
		start := time.Now()
		if err := f.Resign(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		for _, n := range w.nodes {
			n.Up()
		}
		if !l.leads() {
			t.Error("the leader has stopped leading")
		}
	})
}

// The one that resigned leads again if nobody else does, after it has left the field to others for a while.
func TestReelection(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		c := w.elector("alone")
		leader(t, taking, c)
		for range 3 {
			if err := c.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d := await(t, afterResign+taking, "it leads again", c.leads); d < afterResign {
				t.Errorf("it leads again after %v", d)
			}
		}
		synctest.Wait()
		checkCalls(t, c)
		if n := len(c.called()); n != 7 {
			t.Errorf("callbacks %v", c.called())
		}
	})
}

// Resign and Close may be called by anybody, at any time, any number of times.
func TestResignAndCloseAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		serialBubble(t, 3, func(t *testing.T, w *world) {
			c := w.elector("c")
			var wg sync.WaitGroup
			if i%2 == 0 { // else it may be about to be elected
				leader(t, taking, c)
			}
			for range 5 {
				wg.Go(func() {
					if err := c.Resign(t.Context()); err != nil {
						t.Error(err)
					}
				})
				wg.Go(func() {
					c.Term()
					if err := c.Close(t.Context()); err != nil {
						t.Error(err)
					}
					if c.leads() {
						t.Error("it leads after Close")
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Minute)
			if c.leads() {
				t.Error("it leads after Close")
			}
			if err := c.Resign(t.Context()); err != nil {
				t.Error(err)
			}
			checkCalls(t, c)
			if n := len(c.called()); n%2 != 0 {
				t.Errorf("callbacks %v", c.called())
			}
		})
	}
}

// Close waits for what runs and for callbacks, then another one leads and this one never again.
func TestElectorClose(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		release := make(chan struct{})
		a := w.elector("a", OnLost(func(Term, error) { <-release }))
		leader(t, taking, a)
		b := w.elector("b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close, while OnLost runs: %v", err)
		}
		await(t, taking, "the other one leads", b.leads) // no run of a is left, whatever its callback does
		close(release)
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * ttl)
		if len(leaders(a, b)) > 0 {
			t.Error("somebody leads after Close")
		}
	})
}

// atGrant calls f when an acquisition has succeeded, before Acquire returns.
func atGrant(f func()) core.Observer {
	return core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
		if op.Kind != core.OpAcquire {
			return ctx, nil
		}
		return ctx, func(o core.Outcome) {
			if o.Err == nil {
				f()
			}
		}
	}}
}

// An Elector that is closed just when the nodes have granted it the leadership does not take it up.
func TestCloseAtTheMomentOfElection(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var e *Elector
		ready, closed := make(chan struct{}), make(chan error, 1)
		locks := w.locks(core.WithObserver(atGrant(func() {
			<-ready
			go func() { closed <- e.Close(t.Context()) }()
			synctest.Wait()
		})))
		e, err := NewElector(locks, "group", WithLogger(quiet),
			OnElected(func(context.Context, Term) { t.Error("elected after Close") }),
			OnLost(func(Term, error) { t.Error("OnLost without OnElected") }))
		if err != nil {
			t.Fatal(err)
		}
		close(ready)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		leader(t, taking, w.elector("next")) // the key was given back
	})
}
