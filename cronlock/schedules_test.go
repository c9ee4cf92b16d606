package cronlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/internal/race"
)

func at(hour, minute uint) gocron.AtTime { return gocron.NewAtTime(hour, minute, 0) }

// day is the n-th of January 2000, the first of which is when a bubble starts. It was a Saturday.
func day(n, hour int) time.Time { return time.Date(2000, 1, n, hour, 0, 0, 0, time.UTC) }

// Each tick of a schedule by the wall clock runs once, also when one replica's clock is off and when replicas
// start at different times.
func TestExactSchedules(t *testing.T) {
	race.Campaign(t)
	const d = 24 * time.Hour
	// gocron keeps state in a definition, so that no two bubbles may share one.
	for _, skew := range []time.Duration{0, 20 * time.Second, -20 * time.Second} {
		for _, c := range []struct {
			name  string
			def   gocron.JobDefinition
			lasts time.Duration
			ticks int
		}{
			{"cron with seconds", gocron.CronJob("15,45 * * * * *", true), 5 * time.Minute, 10},
			{"cron", gocron.CronJob("*/5 * * * *", false), time.Hour, 12},
			{"descriptor", gocron.CronJob("@hourly", false), 12 * time.Hour, 12},
			{"cron in a zone", gocron.CronJob("CRON_TZ=America/New_York 30 9 * * *", false), 4 * d, 4},
			{"cron in a zone, old style", gocron.CronJob("TZ=Asia/Kolkata 30 9 * * *", false), 4 * d, 4},
			{"daily", gocron.DailyJob(1, gocron.NewAtTimes(at(10, 0), at(18, 30))), 5 * d, 10},
			{"weekly", gocron.WeeklyJob(1, gocron.NewWeekdays(time.Monday, time.Thursday), gocron.NewAtTimes(at(9, 0))), 28 * d, 8},
			{"monthly", gocron.MonthlyJob(1, gocron.NewDaysOfTheMonth(2, 15, -1), gocron.NewAtTimes(at(9, 0))), 121 * d, 12},
			{"one instant", gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(day(1, 10))), d, 1},
			{"some instants", gocron.OneTimeJob(gocron.OneTimeJobStartDateTimes(day(1, 10), day(1, 11), day(1, 20), day(2, 9))), 2 * d, 4},
		} {
			t.Run(fmt.Sprintf("%s/%v", c.name, skew), func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, w *world) {
					w.sched = []gocron.SchedulerOption{gocron.WithLocation(time.UTC)}
					f := w.fleet(c.def, plan{skew: skew, stagger: time.Second})
					time.Sleep(c.lasts)
					f.once(c.ticks)
				})
			})
		}
	}
}

// apart checks that starts are at least so far apart, and that there were at least n.
func (w *world) apart(least time.Duration, n int) {
	w.t.Helper()
	runs := w.ran()
	for i := 1; i < len(runs); i++ {
		if d := runs[i].at.Sub(runs[i-1].at); d < least {
			w.t.Errorf("started at %v and again %v later", runs[i-1].at, d)
		}
	}
	if len(runs) < n {
		w.t.Errorf("%d runs, want %d", len(runs), n)
	}
	for _, r := range runs {
		if r.Tick.IsZero() {
			w.t.Errorf("the run at %v was taken for a manual one", r.at)
		}
	}
}

// A job whose ticks differ between replicas starts as often as one replica alone would start it.
func TestIntervals(t *testing.T) {
	race.Campaign(t)
	const d = 24 * time.Hour
	for _, c := range []struct {
		name    string
		def     gocron.JobDefinition
		stagger time.Duration
		lasts   time.Duration
		least   time.Duration // between starts
		runs    int           // at least
	}{
		{"@every", gocron.CronJob("@every 1m", false), 17 * time.Second, 20 * time.Minute, 59 * time.Second, 20},
		{"@every in a zone", gocron.CronJob("CRON_TZ=Asia/Kolkata @every 1m", false), 17 * time.Second, 20 * time.Minute, 59 * time.Second, 20},
		{"duration", gocron.DurationJob(time.Minute), 17 * time.Second, 20 * time.Minute, 59 * time.Second, 20},
		{"short duration", gocron.DurationJob(time.Second), 333 * time.Millisecond, 20 * time.Second, 900 * time.Millisecond, 20},
		{"random", gocron.DurationRandomJob(time.Minute, 90*time.Second), 17 * time.Second, time.Hour, 59 * time.Second, 40},
		{"every other day", gocron.DailyJob(2, gocron.NewAtTimes(at(10, 0))), d, 20 * d, 47 * time.Hour, 10},
		{"every other week", gocron.WeeklyJob(2, gocron.NewWeekdays(time.Monday), gocron.NewAtTimes(at(10, 0))), 7 * d, 140 * d, 13 * d, 10},
		{"every other month", gocron.MonthlyJob(2, gocron.NewDaysOfTheMonth(3), gocron.NewAtTimes(at(10, 0))), 31 * d, 600 * d, 58 * d, 10},
		{"every other day, twice", gocron.DailyJob(2, gocron.NewAtTimes(at(10, 0), at(14, 0))), d, 20 * d, 4 * time.Hour, 20},
		{"every other week, twice", gocron.WeeklyJob(2, gocron.NewWeekdays(time.Monday, time.Thursday), gocron.NewAtTimes(at(10, 0))), 7 * d, 140 * d, 3 * d, 20},
		{"every other month, twice", gocron.MonthlyJob(2, gocron.NewDaysOfTheMonth(3, -1), gocron.NewAtTimes(at(10, 0))), 31 * d, 600 * d, 24 * d, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				w.sched = []gocron.SchedulerOption{gocron.WithLocation(time.UTC)}
				w.fleet(c.def, plan{stagger: c.stagger, work: work(t, 0)})
				time.Sleep(c.lasts)
				w.apart(c.least, c.runs)
				if n := len(w.ran()); n > c.runs*13/10+2 {
					t.Errorf("%d runs, where one replica alone has about %d", n, c.runs)
				}
			})
		})
	}
}

// With an interval counted from completion, no replica starts before the interval since the last start is over.
func TestIntervalFromCompletion(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.fleet(gocron.DurationJob(time.Minute), plan{stagger: 17 * time.Second, work: work(t, 90*time.Second),
			jobOpts: []JobOption{WithGocron(gocron.WithIntervalFromCompletion())}})
		time.Sleep(30 * time.Minute)
		w.apart(90*time.Second, 10)
	})
}

// What a replica starts at once, it starts for all that come within the misfire grace.
func TestStartImmediately(t *testing.T) {
	immediately := WithGocron(gocron.WithStartAt(gocron.WithStartImmediately()))
	start := func(t *testing.T, w *world, def func() gocron.JobDefinition, opts ...JobOption) {
		time.Sleep(12345 * time.Millisecond) // off the whole second, as it always is outside bubbles
		for i := range 3 {
			r := w.replica(fmt.Sprint(i))
			if i == 1 {
				r.sched.Start() // gocron then runs the job before it tells of it
			}
			r.job(def(), nil, opts...)
			r.sched.Start()
			time.Sleep(5 * time.Second)
		}
		if runs := w.ran(); len(runs) != 1 || runs[0].Tick.IsZero() {
			t.Errorf("started: %v", runs)
		}
	}
	t.Run("one time", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			start(t, w, func() gocron.JobDefinition { return gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()) })
			time.Sleep(time.Hour)
			if n := len(w.ran()); n != 1 {
				t.Errorf("%d runs", n)
			}
		})
	})
	t.Run("cron", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			start(t, w, func() gocron.JobDefinition { return gocron.CronJob("* * * * *", false) }, immediately)
			time.Sleep(10 * time.Minute)
			f := &fleet{w: w}
			f.atMostOnce()
			if n := len(w.ran()); n != 11 {
				t.Errorf("%d runs: one at once, and ten ticks", n)
			}
		})
	})
	t.Run("duration", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			start(t, w, func() gocron.JobDefinition { return gocron.DurationJob(time.Minute) }, immediately)
			time.Sleep(10 * time.Minute)
			w.apart(59*time.Second, 11)
		})
	})
}

// Where the clocks are put forward or back, the ticks that gocron has run once.
func TestDaylightSaving(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin") // Go brings it along
	if err != nil {
		t.Fatal(err)
	}
	for _, eve := range []time.Time{time.Date(2000, 3, 25, 12, 0, 0, 0, zone), time.Date(2000, 10, 28, 12, 0, 0, 0, zone)} {
		for _, c := range []struct {
			name string
			def  gocron.JobDefinition
			n    int // ticks in two days, of at least
		}{
			{"daily cron in the hour", gocron.CronJob("30 2 * * *", false), 1},
			{"hourly cron", gocron.CronJob("30 * * * *", false), 46},
			{"cron every half an hour", gocron.CronJob("*/30 * * * *", false), 94},
			{"daily in the hour", gocron.DailyJob(1, gocron.NewAtTimes(at(2, 30))), 1},
			{"weekly in the hour", gocron.WeeklyJob(1, gocron.NewWeekdays(time.Sunday), gocron.NewAtTimes(at(2, 30))), 1},
		} {
			t.Run(eve.Month().String()+"/"+c.name, func(t *testing.T) {
				bubble(t, 1, func(t *testing.T, w *world) {
					time.Sleep(time.Until(eve))
					w.sched = []gocron.SchedulerOption{gocron.WithLocation(zone)}
					f := w.fleet(c.def, plan{skew: 20 * time.Second, stagger: time.Second})
					time.Sleep(48 * time.Hour)
					if len(f.due()) < c.n {
						t.Errorf("%d ticks were due", len(f.due()))
					}
					f.once(len(f.due()))
				})
			})
		}
	}
}
