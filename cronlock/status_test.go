package cronlock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock/tick"
)

// Every replica can say what became of the latest ticks, who runs the job now, and when it runs next.
func TestStatus(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		f := w.fleet(gocron.CronJob("*/10 * * * * *", true), plan{work: func(ctx context.Context) error {
			run, _ := FromContext(ctx)
			switch run.Tick.Second() {
			case 10:
				return errors.New("not today")
			case 20:
				time.Sleep(15 * time.Second)
			}
			return nil
		}})
		time.Sleep(25 * time.Second)
		s := f.jobs[0].status(t, 3)
		wantOutcomes(t, s, tick.Running, tick.Failed, tick.Open)
		if s.Run == nil || s.Run.Note == "" || s.Run.Note != s.Ticks[0].By || !s.Next.Equal(s.Ticks[0].Tick.Add(10*time.Second)) {
			t.Errorf("in mid-run: %+v", s)
		}
		time.Sleep(20 * time.Second) // the tick at 30 met the run, that at 40 ran
		for _, j := range f.jobs {
			s := j.status(t, 5)
			wantOutcomes(t, s, tick.Ran, tick.Skipped, tick.Ran, tick.Failed, tick.Open)
			long := s.Ticks[2]
			if s.Run != nil || long.By == "" || long.Attempt != 1 || long.Ended.Sub(long.Began).Round(time.Second) != 15*time.Second ||
				long.Began.Sub(long.Tick).Abs() > time.Second {
				t.Errorf("after the runs: %+v", s)
			}
		}
		time.Sleep(20 * time.Second)
		wantOutcomes(t, f.jobs[0].status(t, 7), tick.Ran, tick.Ran, tick.Ran, tick.Skipped, tick.Ran, tick.Failed, tick.Missed)
	})
}

func (j *Job) status(t *testing.T, ticks int) tick.Status {
	t.Helper()
	s, err := j.Status(t.Context(), ticks)
	if err != nil || len(s.Ticks) != ticks || s.Job != "job" {
		t.Fatalf("%+v, %v", s, err)
	}
	return s
}

func wantOutcomes(t *testing.T, s tick.Status, want ...tick.Outcome) {
	t.Helper()
	var got []tick.Outcome
	for i, of := range s.Ticks {
		if got = append(got, of.Outcome); i > 0 && !of.Tick.Equal(s.Ticks[i-1].Tick.Add(-10*time.Second)) {
			t.Errorf("tick %d is %v, after %v", i, of.Tick, s.Ticks[i-1].Tick)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
}

// What was begun and not completed may run again, and is not called missed.
func TestStatusAfterACrash(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		r, die := w.mortal("dies", AtLeastOnce(2))
		r.job(gocron.CronJob("*/10 * * * * *", true), func(context.Context) error { die(); return nil })
		r.sched.Start()
		time.Sleep(10*time.Second + ttl + 5*time.Second)
		looks := w.replica("looks", AtLeastOnce(2)) // and has not been started before
		j := looks.job(gocron.CronJob("*/10 * * * * *", true), nil)
		looks.sched.Start()
		time.Sleep(time.Second)
		var first tick.TickStatus
		for _, of := range j.status(t, 4).Ticks {
			if of.Tick.Equal(w.ran()[0].Tick) {
				first = of
			}
		}
		if first.Outcome != tick.Open {
			t.Errorf("%+v", first)
		}
	})
}

// A job whose ticks differ between replicas has its last start alone, by hand has none.
func TestStatusOfIntervals(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		f := w.fleet(gocron.DurationJob(10*time.Second), plan{})
		if s, err := f.jobs[1].Status(t.Context(), 5); err != nil || len(s.Ticks) != 0 || !s.Next.IsZero() {
			t.Errorf("before the first: %+v, %v", s, err)
		}
		time.Sleep(35 * time.Second)
		s, err := f.jobs[1].Status(t.Context(), 5)
		if err != nil || len(s.Ticks) != 1 || s.Ticks[0].Outcome != tick.Ran || time.Since(s.Ticks[0].Tick) > 10*time.Second {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// Without the nodes there is no status, and the number of ticks has bounds.
func TestStatusErrors(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		f := w.fleet(gocron.CronJob(secondly, true), plan{n: 1})
		time.Sleep(time.Second)
		for _, n := range []int{0, 101} {
			if _, err := f.jobs[0].Status(t.Context(), n); !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%d ticks: %v", n, err)
			}
		}
		w.nodes[0].Hang()
		w.nodes[1].Hang()
		if _, err := f.jobs[0].Status(t.Context(), 3); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("without a quorum: %v", err)
		}
		w.nodes[0].Up()
		w.nodes[1].Up()
	})
}
