package gocronlock

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// bubbleAlone is bubble in a subtest and without parallel tests, for tests that count goroutines.
func bubbleAlone(t *testing.T, name string, after time.Duration, f func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(after)
			f(t, &world{t: t, first: locktest.New(t)})
		})
	})
}

// add adds jobs to a replica, and returns the number of their runs.
func (r *replica) add(t *testing.T, jobs int, schedule cronlock.Schedule, opts ...Option) *atomic.Int32 {
	t.Helper()
	var ran atomic.Int32
	for i := range jobs {
		work := func(context.Context) error {
			ran.Add(1)
			return nil
		}
		if _, err := Add(r.scheduler, r.service, fmt.Sprint("job ", i), schedule, work, opts...); err != nil {
			t.Fatal(err)
		}
	}
	return &ran
}

// A scheduler that does not run for hours, because it was never started or was stopped, accumulates neither jobs nor
// goroutines. When it is started, it runs the jobs.
func TestSchedulerStandsStill(t *testing.T) {
	race.SkipSweep(t)
	const jobs = 10
	still := 3 * time.Hour
	if testing.Short() {
		still = time.Hour
	}
	for name, started := range map[string]bool{"never started": false, "stopped": true} {
		bubbleAlone(t, name, time.Second, func(t *testing.T, w *world) {
			r := w.idleReplica()
			ran := r.add(t, jobs, cronlock.Every(time.Minute), Policy(cronlock.WithGrace(24*time.Hour)))
			if started {
				r.scheduler.Start()
				till(5 * time.Minute)
				if err := r.scheduler.StopJobs(); err != nil {
					t.Fatal(err)
				}
			}
			before := ran.Load()

			till(20 * time.Minute)
			goroutines := runtime.NumGoroutine()
			till(still)
			if n := len(r.scheduler.Jobs()); n > 2*jobs {
				t.Errorf("gocron has %d jobs, for %d", n, jobs)
			}
			if n := runtime.NumGoroutine(); n > goroutines+50 {
				t.Errorf("%d goroutines, %d before", n, goroutines)
			}
			if ran.Load() != before {
				t.Errorf("%d runs while the scheduler stood still", ran.Load()-before)
			}

			r.scheduler.Start()
			time.Sleep(30 * time.Second)
			if n := ran.Load() - before; n < jobs {
				t.Errorf("%d runs of %d jobs after the start", n, jobs)
			}
		})
	}
}

// However often RunNow is called, and whether the calls run the job or find it running, no call stays in the scheduler, and
// ticks go on.
func TestManyRunsByHand(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, w *world) {
		r := w.idleReplica()
		var refused atomic.Int32
		listener := gocron.AfterLockError(func(uuid.UUID, string, error) { refused.Add(1) })
		work := func(ctx context.Context) error {
			time.Sleep(5 * time.Second) // longer than a call waits for the lease
			return w.work(ctx)
		}
		var err error
		r.Job, err = Add(r.scheduler, r.service, "job", cronlock.Every(time.Minute), work, Listeners(listener))
		if err != nil {
			t.Fatal(err)
		}
		r.scheduler.Start()
		till(30 * time.Second)

		for range 100 {
			if err := r.RunNow(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}

		till(5*time.Minute + 30*time.Second)

		ticks, byHand := 0, 0
		for _, tick := range w.ran() {
			if tick.IsZero() {
				byHand++
			} else {
				ticks++
			}
		}
		if n := len(r.scheduler.Jobs()); n != 1 || ticks < 5 || byHand == 0 || refused.Load() == 0 {
			t.Errorf("gocron keeps %d jobs; %d ticks, %d runs by hand, %d refused", n, ticks, byHand, refused.Load())
		}
	})
}

// While the scheduler is stopped, many calls of RunNow leave one call that waits.
func TestRunsByHandThatWait(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, w *world) {
		r := w.replica(cronlock.Every(time.Hour), nil)
		till(30 * time.Second)
		if err := r.scheduler.StopJobs(); err != nil {
			t.Fatal(err)
		}

		before := len(w.ran())
		for range 100 {
			if err := r.RunNow(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}

		if n := len(r.scheduler.Jobs()); n != 2 {
			t.Errorf("gocron has %d jobs, want the job and one call", n)
		}

		r.scheduler.Start()
		time.Sleep(30 * time.Second)
		if n := len(w.ran()) - before; n != 1 {
			t.Errorf("%d runs by hand", n)
		}
	})
}

// Jobs that wait for hours because of the scheduler's limit do not accumulate goroutines.
func TestGoroutinesOfJobsThatWait(t *testing.T) {
	race.SkipSweep(t)
	waiting := 2 * time.Hour
	if testing.Short() {
		waiting = time.Hour
	}
	for name, schedule := range map[string]cronlock.Schedule{"once": cronlock.At(at(2 * time.Minute)), "every minute": cronlock.Every(time.Minute)} {
		bubbleAlone(t, name, 61*time.Second, func(t *testing.T, w *world) {
			r := w.idleReplica(gocron.WithLimitConcurrentJobs(1, gocron.LimitModeWait))
			r.scheduler.Start()

			began := make(chan struct{})
			if _, err := Add(r.scheduler, r.service, "long", cronlock.At(at(time.Minute)), func(ctx context.Context) error {
				close(began)
				<-ctx.Done()
				return nil
			}); err != nil {
				t.Fatal(err)
			}

			<-began
			ran := r.add(t, 20, schedule, Policy(cronlock.WithGrace(4*time.Hour)))
			// Between two ticks, when no poll is running.
			till(3*time.Minute + 30*time.Second)
			goroutines := runtime.NumGoroutine()

			till(waiting + 30*time.Second)
			if n := runtime.NumGoroutine(); n > 2*goroutines || ran.Load() > 0 {
				t.Errorf("%d goroutines, %d before; %d runs", n, goroutines, ran.Load())
			}
		})
	}
}
