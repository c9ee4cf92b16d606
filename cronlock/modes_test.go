package cronlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// Singleton modes drop or queue the calls of ticks that fall due during a run. No tick runs twice for it, no
// call of the backlog counts as a run by hand, and a run by hand afterwards is one.
func TestSingletonModes(t *testing.T) {
	for mode, name := range map[gocron.LimitMode]string{gocron.LimitModeReschedule: "reschedule", gocron.LimitModeWait: "wait"} {
		for _, overlap := range []Overlap{Forbid, Allow} {
			for _, d := range []time.Duration{1570 * time.Millisecond, 3710 * time.Millisecond} {
				t.Run(fmt.Sprint(name, "/", overlap, "/", d), func(t *testing.T) {
					bubble(t, 3, func(t *testing.T, w *world) { singletonMode(t, w, mode, overlap, d) })
				})
			}
		}
	}
}

// singletonMode has runs of d, which is longer than their period, for 20 ticks.
func singletonMode(t *testing.T, w *world, mode gocron.LimitMode, overlap Overlap, d time.Duration) {
	p := plan{work: work(t, d), opts: []Option{WithOverlap(overlap)},
		jobOpts: []JobOption{WithGocron(gocron.WithSingletonMode(mode))}}
	want := int(20*time.Second/d) - 3 // one after the other
	if overlap == Allow {
		p.work = lasting(d)
		want = min(20, 2*want) // with three replicas
	}
	f := w.fleet(gocron.CronJob(secondly, true), p)
	time.Sleep(20*time.Second + 100*time.Millisecond)
	f.atMostOnce()
	if runs := len(w.ran()); runs < want {
		t.Errorf("%d runs in 20 ticks, want %d", runs, want)
	}
}

// A run by hand after runs that outlasted their period is one, although calls of ticks were dropped or queued.
func TestRunNowAfterSingletonBacklog(t *testing.T) {
	for mode, name := range map[gocron.LimitMode]string{gocron.LimitModeReschedule: "reschedule", gocron.LimitModeWait: "wait"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				// Ten ticks in a row, then none for the rest of the minute.
				f := w.fleet(gocron.CronJob("0-9 * * * * *", true), plan{work: work(t, 3710*time.Millisecond),
					jobOpts: []JobOption{WithGocron(gocron.WithSingletonMode(mode))}})
				for k := range 5 {
					time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second)))
					f.atMostOnceButManual(k)
					f.runNow(k % 3)
					time.Sleep(5 * time.Second)
					f.atMostOnceButManual(k + 1)
				}
			})
		})
	}
}

func (f *fleet) atMostOnceButManual(manual int) {
	f.w.t.Helper()
	for tick, n := range f.w.perTick() {
		if !tick.IsZero() && n != 1 {
			f.w.t.Errorf("tick %v ran %d times", tick, n)
		}
	}
	if n := f.w.manual(); n != manual {
		f.w.t.Errorf("%d runs by hand, want %d; the last error: %v", n, manual, f.w.failed()[len(f.w.failed())-1])
	}
}

// A limit on the concurrent jobs of a scheduler drops calls, or queues them behind other jobs.
func TestLimitConcurrentJobs(t *testing.T) {
	for mode, name := range map[gocron.LimitMode]string{gocron.LimitModeReschedule: "reschedule", gocron.LimitModeWait: "wait"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { limitConcurrentJobs(t, w, mode) })
		})
	}
}

func limitConcurrentJobs(t *testing.T, w *world, mode gocron.LimitMode) {
	w.sched = []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, mode)}
	for i := range 3 {
		r := w.replica(fmt.Sprint(i))
		r.add("short", gocron.CronJob(secondly, true), nil)
		r.add("long", gocron.CronJob("*/4 * * * * *", true), lasting(2500*time.Millisecond))
		r.sched.Start()
	}
	time.Sleep(60*time.Second + 500*time.Millisecond)
	w.noneByHand()
	per := map[string]int{}
	for _, r := range w.ran() {
		per[fmt.Sprint(r.Job, " ", r.Tick.UTC())]++
	}
	for of, n := range per {
		if n != 1 {
			t.Errorf("%s ran %d times", of, n)
		}
	}
	if len(per) < 40 {
		t.Errorf("%d ticks ran", len(per))
	}
}

// noneByHand checks that each run was that of a tick.
func (w *world) noneByHand() {
	w.t.Helper()
	for _, r := range w.ran() {
		if r.Tick.IsZero() {
			w.t.Errorf("a run of %s at %v was taken for one by hand", r.Job, r.at)
		}
	}
}

// A call that has waited in the queue of a scheduler for a long time, behind other jobs, is still that of a tick.
func TestLongQueue(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.sched = []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, gocron.LimitModeWait)}
		r := w.replica("0", WithMisfireGrace(time.Hour), WithRetention(2*time.Hour))
		r.add("short", gocron.CronJob("10,20 0 * * * *", true), nil)
		r.add("long", gocron.CronJob("5 0 * * * *", true), lasting(2*time.Minute))
		r.add("longer", gocron.CronJob("15 0 * * * *", true), lasting(2*time.Minute))
		time.Sleep(time.Millisecond)
		r.sched.Start()
		time.Sleep(10 * time.Minute)
		w.noneByHand()
		if n := len(w.ran()); n != 3 { // of the short job's two ticks, the call of the first has run the second
			t.Errorf("%d runs", n)
		}
	})
}
