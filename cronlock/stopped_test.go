package cronlock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
)

// A run that a shutdown has cut short has not completed: at least once means that another replica runs the
// tick again, as it would after a crash. A run that had nothing left to do has completed, whenever it ended.
func TestShutdownInMidRun(t *testing.T) {
	failure := errors.New("failure")
	for _, tt := range []struct {
		name     string
		policy   JobOption
		returns  func(ctx context.Context) error // after the scheduler was stopped
		attempts int
	}{
		{"at least once, cut short", AtLeastOnce(2), context.Cause, 2},
		{"at least once, cut short, with an error of its own", AtLeastOnce(2), func(context.Context) error { return failure }, 2},
		{"at least once, done", AtLeastOnce(2), func(context.Context) error { return nil }, 1},
		{"at most once, cut short", AtMostOnce(), context.Cause, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				first := w.shutDownInMidRun(tt.policy, tt.returns)
				time.Sleep(30 * time.Second)
				w.reran(first, tt.attempts)
			})
		})
	}
}

// shutDownInMidRun starts two replicas, and shuts down the first that runs a tick; its run then ends as returns says.
func (w *world) shutDownInMidRun(policy JobOption, returns func(ctx context.Context) error) (first *replica) {
	w.t.Helper()
	started := make(chan *replica, 10)
	for i := range 2 {
		r := w.replica(fmt.Sprint(i), policy)
		r.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
			started <- r
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				return returns(ctx)
			}
		})
		r.sched.Start()
	}
	first = <-started
	time.Sleep(2 * time.Second) // so that the other one has seen the tick
	if err := first.sched.Shutdown(); err != nil {
		w.t.Fatal(err)
	}
	return first
}

// reran checks that the tick of the first replica had so many attempts, of which a second was made by the other one, soon.
func (w *world) reran(first *replica, attempts int) {
	w.t.Helper()
	runs := w.ran()
	if len(runs) != attempts {
		w.t.Fatalf("%d runs, want %d: %v", len(runs), attempts, runs)
	}
	last := runs[len(runs)-1]
	if last.Attempt != attempts || !last.Tick.Equal(runs[0].Tick) {
		w.t.Errorf("the last run is attempt %d of %v, want %d of %v", last.Attempt, last.Tick, attempts, runs[0].Tick)
	}
	if rerun := last.replica != first.name; rerun != (attempts > 1) {
		w.t.Errorf("the last run was on replica %s, the first on %s", last.replica, first.name)
	}
	if after := last.at.Sub(runs[0].at); after > 4*time.Second { // not only when a lease ends
		w.t.Errorf("run again after %v", after)
	}
}

// An error of a run that nobody stopped is the job's own affair: the tick is done.
func TestFailedRunIsDone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for i := range 2 {
			r := w.replica(fmt.Sprint(i), AtLeastOnce(3))
			r.job(gocron.CronJob("0 * * * * *", true), func(context.Context) error {
				time.Sleep(time.Second)
				return core.ErrHeld
			})
			r.sched.Start()
		}
		time.Sleep(100 * time.Second) // one tick or two
		for tick, n := range w.perTick() {
			if n != 1 {
				t.Errorf("tick %v ran %d times", tick, n)
			}
		}
		if len(w.ran()) == 0 {
			t.Error("nothing ran")
		}
	})
}
