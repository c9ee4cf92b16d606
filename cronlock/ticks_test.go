package cronlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
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
