package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// firstOnly is the work of a job that f does the first time, and nobody after that.
func firstOnly(f func(ctx context.Context)) func(context.Context) error {
	var once sync.Once
	return func(ctx context.Context) error {
		err := error(nil)
		once.Do(func() { f(ctx); err = ctx.Err() })
		return err
	}
}

// dying starts replica a, which dies in its first run of the job, so long after the start. It returns the job's work, which
// takes nobody any time after that.
func (w *world) dying(definition gocron.JobDefinition, after time.Duration) (work func(context.Context) error) {
	w.t.Helper()
	var die func()
	work = firstOnly(func(ctx context.Context) {
		time.Sleep(after)
		die()
		<-ctx.Done()
	})
	time.Sleep(time.Second) // past midnight, by all clocks
	a, kill := w.mortal("a", AtLeastOnce(3))
	die = kill
	a.job(definition, work)
	a.sched.Start()
	return work
}

// A replica that dies late in a run is made good for, although the misfire grace is long over.
func TestReplicaDiesLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		work := w.dying(gocron.CronJob("@hourly", false), 70*time.Second)
		b := w.replica("b", AtLeastOnce(3), WithClock(skewed{defaults().clock, -100 * time.Millisecond}))
		b.job(gocron.CronJob("@hourly", false), work)
		b.sched.Start()
		time.Sleep(time.Hour + 5*time.Minute)
		runs := w.ran()
		if len(runs) != 2 || runs[1].replica != "b" || !runs[1].Tick.Equal(runs[0].Tick) {
			t.Fatalf("runs %v; errors %v", runs, w.failed())
		}
		attemptsInOrder(t, runs)
		if late := runs[1].at.Sub(runs[0].at); late > 70*time.Second+2*ttl {
			t.Errorf("run again after %v", late)
		}
	})
}

// Ticks that overlap are skipped when they fall due, also by a replica that is a little early: at least once does not
// make a queue of them.
func TestForbidIsNoQueue(t *testing.T) {
	for _, ahead := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				f := w.fleet(gocron.CronJob("*/10 * * * * *", true), plan{skew: ahead, work: work(t, 28*time.Second), opts: []Option{AtLeastOnce(3)}})
				time.Sleep(5 * time.Minute)
				f.atMostOnce()
				for _, r := range w.ran() {
					if late := r.at.Sub(r.Tick); late > time.Second {
						t.Errorf("tick %v started late, by %v", r.Tick, late)
					}
				}
				if n := len(w.ran()); n < 9 || n > 11 {
					t.Errorf("%d runs of three periods in 30 ticks", n)
				}
			})
		})
	}
}

// A replica that follows a run asks for it now and then.
func TestFollowingIsQuiet(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.fleet(gocron.CronJob(minutely, true), plan{skew: 100 * time.Millisecond, work: lasting(50 * time.Second), opts: []Option{AtLeastOnce(2)}})
		time.Sleep(59 * time.Second)
		before := w.nodes[0].Calls()["EVALSHA"]
		time.Sleep(time.Minute)
		if n := w.nodes[0].Calls()["EVALSHA"] - before; n > 90 {
			t.Errorf("%d requests to a node in a minute", n)
		}
	})
}

// A replica whose scheduler drops the rerun, because other jobs of its own are under way, keeps nobody else from it.
func TestRerunBesideABusyReplica(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		work := w.dying(gocron.CronJob(minutely, true), 0)
		w.sched = []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, gocron.LimitModeReschedule)}
		for _, name := range []string{"busy", "idle"} {
			r := w.replica(name, AtLeastOnce(3), WithClock(skewed{defaults().clock, -100 * time.Millisecond}))
			r.job(gocron.CronJob(minutely, true), work)
			if name == "busy" {
				_, err := r.sched.NewJob(gocron.CronJob("5 1 * * * *", true), gocron.NewTask(func() { time.Sleep(40 * time.Second) }))
				if err != nil {
					t.Fatal(err)
				}
			}
			r.sched.Start()
		}
		time.Sleep(89 * time.Second)
		runs := w.ran()
		if len(runs) != 2 || runs[1].replica != "idle" {
			t.Fatalf("runs %v; errors %v", runs, w.failed())
		}
		if late := runs[1].at.Sub(runs[0].at); late > ttl+3*time.Second {
			t.Errorf("run again after %v", late)
		}
		time.Sleep(30 * time.Second)
	})
}

// A rerun that the scheduler drops is tried again until it is taken.
func TestRerunIsTriedAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		work := w.dying(gocron.CronJob(minutely, true), 0)
		w.sched = []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, gocron.LimitModeReschedule)}
		b := w.replica("b", AtLeastOnce(3), WithClock(skewed{defaults().clock, -100 * time.Millisecond}))
		b.job(gocron.CronJob(minutely, true), work)
		if _, err := b.sched.NewJob(gocron.CronJob("5 1 * * * *", true), gocron.NewTask(func() { time.Sleep(20 * time.Second) })); err != nil {
			t.Fatal(err)
		}
		b.sched.Start()
		time.Sleep(74 * time.Second)
		time.Sleep(20 * time.Second)
		if runs := w.ran(); len(runs) != 2 || runs[1].replica != "b" || runs[1].at.Sub(runs[0].at) > 28*time.Second {
			t.Errorf("runs %v; errors %v", runs, w.failed())
		}
		if n := len(b.sched.Jobs()); n != 2 {
			t.Errorf("gocron lists %d jobs", n)
		}
	})
}

// The scheduler can be stopped at once, at whatever point a rerun is.
func TestStopJobsDuringRerun(t *testing.T) {
	t.Parallel()
	for k := range 12 {
		serialBubble(t, 3, func(t *testing.T, w *world) {
			work := w.dying(gocron.CronJob(minutely, true), 0)
			b := w.replica("b", AtLeastOnce(3), WithClock(skewed{defaults().clock, -100 * time.Millisecond}))
			b.job(gocron.CronJob(minutely, true), work)
			b.sched.Start()
			time.Sleep(59*time.Second + ttl - time.Second + time.Duration(k)*200*time.Millisecond)
			if len(w.ran()) == 0 {
				t.Error("nothing to run again")
			}
			start := time.Now()
			if err := b.sched.StopJobs(); err != nil || time.Since(start) > 100*time.Millisecond {
				t.Errorf("%d: stopped after %v: %v", k, time.Since(start), err)
			}
			start = time.Now()
			if err := b.Close(t.Context()); err != nil || time.Since(start) > 2*time.Second {
				t.Errorf("%d: closed after %v: %v", k, time.Since(start), err)
			}
			free, err := w.locks().Acquire(t.Context(), core.Key("cron", "service", "job", "run"), core.MaxWait(2*time.Second))
			if err != nil {
				t.Fatalf("%d: the job is not free: %v", k, err)
			}
			free.Release(t.Context())
		})
	}
}

// A run that a listener skips after it was locked has not started: others run the tick, as their first attempt.
func TestSkippedByAListener(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var e locktest.Events
		no := listeners(gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(uuid.UUID, string) error { return errors.New("not here") }))
		a := w.replicaOn("a", w.locks(core.WithObserver(e.Observer())), AtLeastOnce(2), WithClock(skewed{defaults().clock, 100 * time.Millisecond}))
		a.job(gocron.CronJob(minutely, true), nil, no)
		b := w.replica("b", AtLeastOnce(2))
		b.job(gocron.CronJob(minutely, true), nil)
		for _, r := range []*replica{a, b} {
			r.sched.Start()
		}
		time.Sleep(6*time.Minute + 30*time.Second)
		for tick, n := range w.perTick() {
			if n != 1 {
				t.Errorf("tick %v ran %d times", tick, n)
			}
		}
		for _, r := range w.ran() {
			if r.replica != "b" || r.Attempt != 1 {
				t.Errorf("tick %v: attempt %d on %s", r.Tick, r.Attempt, r.replica)
			}
		}
		if n := len(w.ran()); n != 6 {
			t.Errorf("%d runs of 6 ticks", n)
		}
		if n := e.Count("cronlock " + string(EventSkipped)); n == 0 || e.Count("cronlock "+string(EventRun)) > 0 {
			t.Errorf("events: %v", e.Counts())
		}
		synctest.Wait()
	})
}

// A run whose context has ended before its function is called does not start.
func TestEndedBeforeItBegins(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		r := w.replica("0")
		var j *Job
		j = r.job(gocron.CronJob(minutely, true), nil, listeners(gocron.AfterLockError(r.note),
			gocron.BeforeJobRuns(func(uuid.UUID, string) { go j.Remove(); time.Sleep(time.Second) }))) //nolint:errcheck // shown below
		r.sched.Start()
		time.Sleep(70 * time.Second)
		if runs := w.ran(); len(runs) > 0 {
			t.Errorf("ran %v", runs)
		}
		b := w.replica("1", WithClock(skewed{defaults().clock, -30 * time.Second})) // to which the tick is left
		b.job(gocron.CronJob(minutely, true), nil)
		b.sched.Start()
		time.Sleep(25 * time.Second)
		if n := len(w.ran()); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

// Late starts under Replace: a run that takes more than ten seconds to clean up delays the tick that replaces it.
func TestReplaceWaitsForCleanUp(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for i := range 2 {
			r := w.replica(fmt.Sprint(i), WithOverlap(Replace))
			r.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), ErrReplaced) {
					time.Sleep(15 * time.Second)
				}
				return nil
			})
			r.sched.Start()
		}
		time.Sleep(7*time.Minute + 30*time.Second)
		w.oncePerTick()
		runs := w.ran()
		for i := 1; i < len(runs); i++ {
			if !runs[i].Tick.Equal(runs[i-1].Tick.Add(time.Minute)) || runs[i].at.Sub(runs[i].Tick) > 30*time.Second {
				t.Errorf("tick %v, at %v, after %v", runs[i].Tick, runs[i].at, runs[i-1].Tick)
			}
		}
		if len(runs) != 7 {
			t.Errorf("%d runs of 7 ticks: %v", len(runs), w.failed())
		}
	})
}
