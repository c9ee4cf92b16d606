package cronlock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// runNow runs the job of a replica by hand.
func (f *fleet) runNow(i int) {
	f.w.t.Helper()
	if err := f.jobs[i].RunNow(); err != nil {
		f.w.t.Fatal(err)
	}
}

// calm waits until no tick of a replica is near.
func (f *fleet) calm(i int) {
	f.w.t.Helper()
	for {
		next, err := f.jobs[i].Handle().NextRun()
		if err != nil {
			f.w.t.Fatal(err)
		}
		if time.Until(next) > 10*time.Second {
			return
		}
		time.Sleep(time.Second)
	}
}

// manual counts the runs that no tick caused.
func (w *world) manual() int { return w.perTick()[time.Time{}] }

// A run by hand runs on its replica and takes no tick from anybody, whenever it comes. (Not at the very instant of a
// tick: there gocron would start it over and over, as the time of a bubble stands still.)
func TestRunNow(t *testing.T) {
	for _, c := range []struct {
		name string
		at   time.Duration // past a tick
	}{{"soon after a tick", 10 * time.Millisecond}, {"at a tick", time.Microsecond}, {"between ticks", 30 * time.Second}, {"before a tick", 50 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { runByHandAt(t, w, c.at) })
		})
	}
}

// runByHandAt has each replica run the job by hand, so long after a tick.
func runByHandAt(t *testing.T, w *world, pastTick time.Duration) {
	f := w.fleet(gocron.CronJob("* * * * *", false), plan{opts: []Option{WithOverlap(Allow)}})
	for i := range 3 {
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + pastTick)))
		f.runNow(i)
	}
	time.Sleep(80 * time.Second)
	due, per := f.due(), w.perTick()
	if w.manual() != 3 {
		t.Errorf("%d runs by hand, want 3; errors: %v", w.manual(), w.failed())
	}
	for _, tick := range due {
		if per[tick] != 1 {
			t.Errorf("tick %v ran %d times", tick, per[tick])
		}
	}
	if len(w.ran()) != len(due)+3 {
		t.Errorf("%d runs of %d ticks and 3 by hand", len(w.ran()), len(due))
	}
}

// A run by hand so short before a tick that a call could be the tick's is one by hand all the same.
func TestRunNowJustBeforeTick(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		f := w.fleet(gocron.CronJob("* * * * *", false), plan{opts: []Option{WithOverlap(Allow)}})
		time.Sleep(59*time.Second + 950*time.Millisecond)
		f.runNow(0)
		f.runNow(1)
		time.Sleep(2 * time.Minute)
		f.atMostOnceButManual(2)
		if len(w.ran()) != 2+len(f.due()) {
			t.Errorf("%d runs of %d ticks and 2 by hand", len(w.ran()), len(f.due()))
		}
	})
}

// Runs by hand do not overlap with those of ticks, nor with each other, on whatever replica.
func TestRunNowDoesNotOverlap(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		f := w.fleet(gocron.CronJob("* * * * *", false), plan{work: work(t, 30*time.Second)})
		time.Sleep(70 * time.Second)
		for i := range 3 {
			f.runNow(i)
		}
		time.Sleep(15 * time.Second)
		if w.manual() != 0 || len(w.failed()) != 2+3 {
			t.Errorf("%d runs by hand during that of a tick, errors: %v", w.manual(), w.failed())
		}
		time.Sleep(10 * time.Second) // the run of the tick is over
		for i := range 3 {
			f.runNow(i)
		}
		time.Sleep(time.Second)
		if w.manual() != 1 {
			t.Errorf("%d runs by hand at once", w.manual())
		}
	})
}

// The gap of an interval job holds between its ticks: a run by hand neither waits for it nor begins one.
func TestRunNowOfIntervals(t *testing.T) {
	for name, def := range map[string]gocron.JobDefinition{
		"duration": gocron.DurationJob(time.Minute),
		"random":   gocron.DurationRandomJob(50*time.Second, time.Minute),
		"@every":   gocron.CronJob("@every 1m", false),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				f := w.fleet(def, plan{stagger: 10 * time.Second, work: work(t, 0)})
				time.Sleep(5 * time.Minute)
				before := len(w.ran())
				for k := range 5 {
					f.calm(k % 3)
					f.runNow(k % 3)
					time.Sleep(time.Second)
					if w.manual() != k+1 {
						t.Errorf("%d runs by hand of %d; errors: %v", w.manual(), k+1, w.failed())
					}
					time.Sleep(time.Minute)
				}
				ticks := len(w.ran()) - before - w.manual()
				if ticks < 4 || ticks > 7 {
					t.Errorf("%d ticks ran in five minutes", ticks)
				}
			})
		})
	}
}

// A limit on the number of runs is one of a replica: it is refused where the job is added.
func TestLimitedRunsAreRefused(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("0")
		_, err := r.Add("job", gocron.CronJob(secondly, true), stable, WithGocron(gocron.WithTags("a"), gocron.WithLimitedRuns(2)))
		if err == nil || !strings.Contains(err.Error(), "WithLimitedRuns counts the runs of one replica") {
			t.Errorf("error %v", err)
		}
		if len(r.sched.Jobs()) > 0 {
			t.Error("the job was added")
		}
		if _, err := r.Add("job", gocron.CronJob(secondly, true), stable, WithGocron(gocron.WithTags("a"))); err != nil {
			t.Error(err)
		}
	})
}

// A scheduler that is stopped misses ticks, which others run; started again it goes on, by hand, too.
func TestStopAndStart(t *testing.T) {
	for _, stop := range []struct{ at, lasts time.Duration }{{5300 * time.Millisecond, 3 * time.Second}, {5300 * time.Millisecond, 100 * time.Millisecond}, {5*time.Second + time.Microsecond, 0}} {
		t.Run(fmt.Sprint(stop), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { stopAndStart(t, w, stop.at, stop.lasts) })
		})
	}
}

// stopAndStart stops one replica after the other, each for a while.
func stopAndStart(t *testing.T, w *world, at, lasts time.Duration) {
	f := w.fleet(gocron.CronJob(secondly, true), plan{})
	time.Sleep(at)
	for _, r := range f.replicas {
		if err := r.sched.StopJobs(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lasts)
		r.sched.Start()
	}
	time.Sleep(10*time.Second + 7*time.Millisecond)
	if lasts == 0 { // at a tick, which may then be nobody's
		f.atMostOnce()
		return
	}
	f.once(len(f.due()))
	for i := range f.replicas {
		time.Sleep(100 * time.Millisecond)
		f.runNow(i)
	}
	time.Sleep(100 * time.Millisecond)
	if w.manual() != 3 {
		t.Errorf("%d runs by hand; errors: %v", w.manual(), w.failed())
	}
}

// A job keeps running once per tick when a replica changes or removes it, and adds it again.
func TestUpdateAndRemove(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		f := w.fleet(gocron.CronJob(secondly, true), plan{})
		time.Sleep(5*time.Second + 500*time.Millisecond)
		for _, i := range []int{0, 1} {
			if err := f.jobs[i].Update(gocron.CronJob("*/2 * * * * *", true)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		f.once(10)
		if err := f.jobs[2].Remove(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second) // 12 and 14 are due
		f.atMostOnce()
		if n := len(w.ran()); n != 12 {
			t.Errorf("%d runs, want 12", n)
		}
		if err := f.replicas[2].job(gocron.CronJob(secondly, true), nil).Remove(); err != nil { // the name was free
			t.Error(err)
		}
		for _, i := range []int{0, 1} { // again with another name
			if err := f.jobs[i].Remove(); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range f.replicas {
			r.add("other", gocron.CronJob(secondly, true), nil)
		}
		before := len(w.ran())
		time.Sleep(5 * time.Second)
		if n := len(w.ran()) - before; n != 5 {
			t.Errorf("%d runs in 5 ticks under another name", n)
		}
	})
}

// A run by hand that gocron drops, because its limit of concurrent jobs is reached, is told as refused.
func TestRunNowDropped(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		var e locktest.Events
		w.sched = []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, gocron.LimitModeReschedule)}
		r := w.replicaOn("0", w.locks(core.WithObserver(e.Observer())))
		j := r.job(gocron.CronJob(minutely, true), nil)
		if _, err := r.sched.NewJob(gocron.CronJob("5 * * * * *", true), gocron.NewTask(func() { time.Sleep(20 * time.Second) })); err != nil {
			t.Fatal(err)
		}
		r.sched.Start()
		time.Sleep(10 * time.Second)
		if err := j.RunNow(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if n := e.Count("cronlock " + string(EventRefused)); n != 1 || w.manual() != 0 {
			t.Errorf("%d refusals, %d runs by hand", n, w.manual())
		}
	})
}
