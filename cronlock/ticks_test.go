package cronlock

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
)

// skews are those of one replica: none, and a third of the period either way.
func skews(period time.Duration) []time.Duration {
	return []time.Duration{0, period / 3, -period / 3}
}

// Each tick of a job by the wall clock runs once, whatever the skew between replicas, however short the job,
// and if runs may overlap, however long.
func TestOncePerTick(t *testing.T) {
	for _, c := range []struct {
		crontab string
		seconds bool
		period  time.Duration
		nodes   int
	}{{secondly, true, time.Second, 3}, {"* * * * *", false, time.Minute, 1}} {
		for _, skew := range skews(c.period) {
			for _, d := range []time.Duration{0, time.Millisecond, c.period * 3 / 2} {
				t.Run(fmt.Sprintf("%v/skew=%v/job=%v", c.period, skew, d), func(t *testing.T) {
					bubble(t, c.nodes, func(t *testing.T, w *world) {
						p := plan{skew: skew, work: work(t, d)}
						if d > c.period {
							p.work, p.opts = lasting(d), []Option{WithOverlap(Allow)}
						}
						f := w.fleet(gocron.CronJob(c.crontab, c.seconds), p)
						time.Sleep(20*c.period + c.period/2)
						f.once(20)
					})
				})
			}
		}
	}
}

// Where a run outlasts the period and overlap is forbidden, the ticks meanwhile are skipped, and the first
// after it runs.
func TestOverlapSkipsTicks(t *testing.T) {
	for _, skew := range skews(time.Second) {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				f := w.fleet(gocron.CronJob(secondly, true), plan{skew: skew, work: work(t, 1500*time.Millisecond)})
				time.Sleep(20*time.Second + 500*time.Millisecond)
				f.atMostOnce()
				if n := len(w.ran()); n < 9 || n > 11 {
					t.Errorf("%d runs of 1.5 periods in 20 ticks", n)
				}
			})
		})
	}
}

// Replicas that registered their jobs in different order mean the same job by a name.
func TestOrderOfRegistration(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for i := range 3 {
			r := w.replica(fmt.Sprint(i))
			for k := range 3 {
				r.add(fmt.Sprint("job", (i+k)%3), gocron.CronJob(secondly, true), nil)
			}
			r.sched.Start()
		}
		time.Sleep(10*time.Second + 500*time.Millisecond)
		type tick struct {
			job string
			at  time.Time
		}
		per := map[tick]int{}
		for _, r := range w.ran() {
			per[tick{r.Job, r.Tick.UTC()}]++
		}
		for of, n := range per {
			if n != 1 || of.at.IsZero() {
				t.Errorf("%v ran %d times", of, n)
			}
		}
		if len(per) != 3*10 {
			t.Errorf("%d ticks ran of 3 jobs", len(per))
		}
	})
}

// A call is for the latest tick that is due: also where gocron has dropped it from its list, because an earlier call ended
// before.
func TestLatestTick(t *testing.T) {
	t.Parallel()
	at := func(s float64) time.Time { return day(1, 0).Add(time.Duration(s * float64(time.Second))) }
	var known ticks
	for i, c := range []struct {
		listed []float64
		now    float64
		latest float64 // 0: none
		fresh  bool
	}{
		{[]float64{1, 2}, 1, 1, true},
		{[]float64{2, 3}, 1.5, 1, false},      // gocron's RunNow
		{[]float64{3, 4}, 2.5, 2, true},       // gocron has dropped the second
		{[]float64{3, 4, 5, 6}, 5.1, 5, true}, // calls have queued
		{[]float64{6, 7}, 5.2, 5, false},      // one of those
		{[]float64{6, 7}, 4, 0, false},        // the clock was set back
		{[]float64{6, 7, 8, 9}, 8.5, 8, true}, // or forward
	} {
		var listed []time.Time
		for _, s := range c.listed {
			listed = append(listed, at(s))
		}
		if fresh := known.see(listed, at(c.now)); fresh != c.fresh || known.latest.IsZero() != (c.latest == 0) || c.latest > 0 && !known.latest.Equal(at(c.latest)) {
			t.Errorf("call %d: %v, fresh %t", i, known.latest, fresh)
		}
	}
}

// A run that a listener holds up, and then skips, is not given to the task of a later call.
func TestRunsAreNotSwapped(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.sched = []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(3, gocron.LimitModeWait)} // or the listener holds up the next call
		r := w.replica("0", WithOverlap(Allow))
		var calls atomic.Int32
		r.job(gocron.CronJob(secondly, true), nil, listeners(gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(uuid.UUID, string) error {
			if calls.Add(1) > 1 {
				return nil
			}
			time.Sleep(2500 * time.Millisecond)
			return errors.New("not this one")
		})))
		time.Sleep(100 * time.Millisecond)
		r.sched.Start()
		time.Sleep(6 * time.Second)
		per := w.perTick()
		if n := per[day(1, 0).Add(time.Second)]; n > 0 {
			t.Error("the tick that was skipped has run")
		}
		w.oncePerTick()
		if len(per) < 3 {
			t.Errorf("%d ticks ran", len(per))
		}
	})
}
