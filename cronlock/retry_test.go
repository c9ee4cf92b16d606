package cronlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/cronlock/tick"
)

// A function that returns an error is called again in the same run, after pauses that double, and no oftener than the
// policy says.
func TestRetry(t *testing.T) {
	for _, tt := range []struct {
		name        string
		fails, runs int
		outcome     tick.Outcome
	}{
		{"succeeds at once", 0, 1, tick.Ran},
		{"succeeds the third time", 2, 3, tick.Ran},
		{"never succeeds", 9, 4, tick.Failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				f := w.fleet(gocron.CronJob(minutely, true), plan{opts: []Option{WithRetry(3, 4*time.Second)}, work: failing(tt.fails)})
				untilMinute(50 * time.Second)
				if runs := w.ran(); len(runs) != tt.runs {
					t.Errorf("%d calls, want %d", len(runs), tt.runs)
				}
				w.retried(4 * time.Second)
				wantOutcomes(t, f.jobs[0].status(t, 1), tt.outcome)
			})
		})
	}
}

// failing is a job that returns an error for the first times.
func failing(times int) func(context.Context) error {
	return func(ctx context.Context) error {
		if run, _ := FromContext(ctx); run.Retry < times {
			return errors.New("not yet")
		}
		return nil
	}
}

// retried checks that the calls are those of one run, with pauses that double.
func (w *world) retried(backoff time.Duration) {
	w.t.Helper()
	runs := w.ran()
	for i, r := range runs {
		if r.Retry != i || r.Attempt != 1 || r.replica != runs[0].replica || r.FencingToken != runs[0].FencingToken {
			w.t.Errorf("call %d is %+v", i, r)
		}
		if i == 0 {
			continue
		}
		if d, most := r.at.Sub(runs[i-1].at), backoff<<(i-1); d < most/2 || d > most {
			w.t.Errorf("pause %d took %v, want %v to %v", i, d, most/2, most)
		}
	}
}

// A run that was told to stop is not retried: with at least once, another replica has its tick.
func TestRetryStops(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		first, die := w.mortal("first", WithRetry(20, time.Minute), AtLeastOnce(2))
		first.job(gocron.CronJob(minutely, true), failing(100))
		second := w.replica("second", AtLeastOnce(2), WithClock(skewed{defaults().clock, -300 * time.Millisecond}))
		second.job(gocron.CronJob(minutely, true), nil)
		time.Sleep(time.Second)
		first.sched.Start()
		second.sched.Start()
		at := untilMinute(5 * time.Second)
		die()
		time.Sleep(50 * time.Second)
		runs := w.ran()
		if len(runs) != 2 || runs[0].replica != "first" || runs[1].replica != "second" || !runs[1].Tick.Equal(at) || runs[1].Attempt != 2 {
			t.Errorf("runs %+v", runs)
		}
	})
}
