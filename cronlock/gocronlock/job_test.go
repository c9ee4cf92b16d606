package gocronlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/internal/race"
)

// While the scheduler is stopped, RunNow and the calls that the engine requests do not block.
func TestStoppedScheduler(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, w *world) {
		r := w.replica(cronlock.Every(time.Minute), nil)

		till(30 * time.Second)
		if err := r.scheduler.StopJobs(); err != nil {
			t.Fatal(err)
		}
		if err := r.RunNow(); err != nil {
			t.Fatal(err)
		}
		till(3*time.Minute + 30*time.Second) // the engine requests calls for three ticks

		r.scheduler.Start()
		till(5*time.Minute + 30*time.Second)
		ran := w.ran()
		if ran[len(ran)-1] != at(5*time.Minute) || len(ran) < 4 {
			t.Errorf("ran %v", ran)
		}
	})
}

// StopJobs ends the context of a run by hand, and does not wait forever for the run.
func TestStopJobsDuringARun(t *testing.T) {
	bubble(t, 30*time.Minute, func(t *testing.T, w *world) {
		r := w.replica(cronlock.Every(time.Hour), nil)
		runs := make(chan struct{})
		j, err := Add(r.scheduler, r.service, "long", cronlock.Every(time.Hour), func(ctx context.Context) error {
			close(runs)
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil {
			t.Fatal(err)
		}

		till(31 * time.Minute) // the engine has found that nothing is due
		if err := j.RunNow(); err != nil {
			t.Fatal(err)
		}

		<-runs
		if err := r.scheduler.StopJobs(); err != nil {
			t.Error(err)
		}

		synctest.Wait()
		if n := len(r.scheduler.Jobs()); n != 2 {
			t.Errorf("gocron keeps %d jobs", n)
		}
	})
}

// A schedule that has no more instants does not make gocron loop, neither after its last instant nor if it had none
// when the job was added.
func TestScheduleEnds(t *testing.T) {
	bubble(t, 0, func(t *testing.T, w *world) {
		r := w.replica(cronlock.At(at(time.Minute)), nil, Tags("nightly", "billing"))
		till(10 * time.Minute)
		if _, err := Add(r.scheduler, r.service, "over", cronlock.At(at(2*time.Minute)), w.work); err != nil {
			t.Fatal(err)
		}
		till(20 * time.Minute)
		if w.want(at(time.Minute)); !slices.Equal(r.listed.Tags()[:2], []string{"nightly", "billing"}) {
			t.Errorf("tags: %v", r.listed.Tags())
		}
		for _, j := range r.scheduler.Jobs() {
			if next, err := j.NextRun(); err != nil || next.Before(at(time.Hour)) {
				t.Errorf("gocron runs %s next at %v, %v", j.Name(), next, err)
			}
		}
	})
}

// A scheduler with its own elector does not ask for locks. The job then does not run, and listeners get the reason.
func TestElectorOfTheScheduler(t *testing.T) {
	bubble(t, 30*time.Minute, func(t *testing.T, w *world) {
		var told atomic.Value
		w.replica(cronlock.Every(time.Hour), []gocron.SchedulerOption{gocron.WithDistributedElector(always{})},
			Listeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { told.Store(err) })))
		till(time.Hour + time.Second/2)
		w.want()
		if err, _ := told.Load().(error); !errors.Is(err, errNoLock) {
			t.Errorf("the listener was told %v", err)
		}
	})
}

type always struct{}

func (always) IsLeader(context.Context) error { return nil }

// If Add fails, its error names the fault, and nothing is added.
func TestAddRefuses(t *testing.T) {
	if _, err := Add(nil, nil, "job", nil, nil); err == nil || !strings.Contains(err.Error(), "the scheduler is nil\n") {
		t.Errorf("without scheduler and service: %v", err)
	}
	bubble(t, 0, func(t *testing.T, w *world) {
		r := w.replica(cronlock.Every(time.Minute), nil)
		if _, err := Add(r.scheduler, r.service, "other", cronlock.Crontab("61 * * * *", time.UTC), w.work); err == nil || len(r.scheduler.Jobs()) != 1 {
			t.Errorf("a bad job: %v, and gocron has %d jobs", err, len(r.scheduler.Jobs()))
		}

		if err := r.scheduler.Shutdown(); err != nil {
			t.Fatal(err)
		}
		if err := r.RunNow(); !errors.Is(err, core.ErrClosed) {
			t.Errorf("run by hand on a scheduler that is shut down: %v", err)
		}
		if _, err := Add(r.scheduler, r.service, "third", cronlock.Every(time.Minute), w.work); err == nil {
			t.Error("added to a scheduler that is shut down")
		}
		if _, err := r.service.Add("third", cronlock.Every(time.Minute), w.work); err != nil {
			t.Errorf("the service kept a job that gocron refused: %v", err)
		}
	})
}

// listedID returns the id of the first job that gocron lists under the name "job". That may be a call of the job.
func (r *replica) listedID(t *testing.T) uuid.UUID {
	t.Helper()
	for _, j := range r.scheduler.Jobs() {
		if j.Name() == "job" {
			return j.ID()
		}
	}
	t.Fatal("gocron does not list the job")
	return uuid.Nil
}

// A job that the user removes from the scheduler, by its id, by a tag or by a shutdown, has no more runs, neither for
// ticks nor by hand, and its name is free. The service goes on.
func TestRemovedFromTheScheduler(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, r *replica){
		"RemoveJob": func(t *testing.T, r *replica) {
			if err := r.scheduler.RemoveJob(r.listedID(t)); err != nil {
				t.Fatal(err)
			}
		},
		"RemoveByTags": func(_ *testing.T, r *replica) { r.scheduler.RemoveByTags("nightly") },
		"Shutdown": func(t *testing.T, r *replica) {
			if err := r.scheduler.Shutdown(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, time.Second, func(t *testing.T, w *world) {
				r := w.replica(cronlock.Every(time.Minute), nil, Tags("nightly"))
				till(90 * time.Second)

				before := len(w.ran())
				remove(t, r)

				if err := r.RunNow(); !errors.Is(err, core.ErrClosed) {
					t.Errorf("RunNow: %v", err)
				}
				if _, err := r.service.Add("job", cronlock.At(at(time.Hour)), w.work); err != nil {
					t.Errorf("the name is taken: %v", err)
				}

				till(10 * time.Minute)
				if after := len(w.ran()); before == 0 || after != before {
					t.Errorf("%d runs before, %d after", before, after)
				}
			})
		})
	}
}

// gocron does not report that a job was removed from the scheduler. The engine notices it at its next poll, before it
// starts anything, even if a call waits in the scheduler's queue.
func TestRemovedWhileACallWaits(t *testing.T) {
	for range 4 { // listedID returns sometimes the job, and sometimes its call
		t.Run("", removedWhileACallWaits)
	}
}

func removedWhileACallWaits(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, w *world) {
		r := w.replica(cronlock.At(at(2*time.Minute)), []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, gocron.LimitModeWait)},
			Policy(cronlock.WithGrace(time.Hour)))
		if _, err := Add(r.scheduler, r.service, "long", cronlock.At(at(time.Minute)), func(ctx context.Context) error {
			select {
			case <-time.After(10 * time.Minute):
			case <-ctx.Done():
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}

		till(3 * time.Minute)
		if err := r.RunNow(); err != nil {
			t.Fatal(err)
		}
		till(4 * time.Minute)
		if err := r.scheduler.RemoveJob(r.listedID(t)); err != nil {
			t.Fatal(err)
		}

		till(30 * time.Minute)
		w.want()
	})
}

// If jobs wait because of the scheduler's limit, each of them has at most one call in the queue, and all run when the
// limit allows it.
func TestJobsThatWaitForASlot(t *testing.T) { //nolint:gocognit // cases in cases
	race.SkipSweep(t)
	for name, schedule := range map[string]cronlock.Schedule{"once": cronlock.At(at(2 * time.Minute)), "every minute": cronlock.Every(time.Minute)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 61*time.Second, func(t *testing.T, w *world) {
				r := w.replica(cronlock.Every(4*time.Hour), []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, gocron.LimitModeWait)})

				began := make(chan struct{})
				if _, err := Add(r.scheduler, r.service, "long", cronlock.At(at(time.Minute)), func(ctx context.Context) error {
					close(began)
					select {
					case <-time.After(3 * time.Hour):
					case <-ctx.Done():
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				<-began

				const jobs = 20
				var ran [jobs]atomic.Int32
				for i := range jobs {
					if _, err := Add(r.scheduler, r.service, string(rune('a'+i)), schedule, func(context.Context) error {
						ran[i].Add(1)
						return nil
					}, Policy(cronlock.WithGrace(4*time.Hour))); err != nil {
						t.Fatal(err)
					}
				}

				for _, after := range []time.Duration{3 * time.Minute, time.Hour, 2 * time.Hour} {
					till(after)
					if n := r.scheduler.JobsWaitingInQueue(); n > jobs+1 {
						t.Errorf("%d calls wait after %v", n, after)
					}
					if n := len(r.scheduler.Jobs()); n > 2*(jobs+2) {
						t.Errorf("gocron has %d jobs after %v", n, after)
					}
				}

				till(3*time.Hour + 5*time.Minute)
				for i := range ran {
					if ran[i].Load() == 0 {
						t.Errorf("job %d did not run", i)
					}
				}
			})
		})
	}
}

// If LimitModeReschedule drops runs by hand, they leave nothing behind in gocron. If it drops the call for a tick, the
// tick runs when the limit allows it.
func TestDroppedCalls(t *testing.T) {
	bubble(t, 61*time.Second, func(t *testing.T, w *world) {
		r := w.replica(cronlock.Every(2*time.Minute), []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, gocron.LimitModeReschedule)},
			Policy(cronlock.WithGrace(time.Hour)))

		began := make(chan struct{})
		if _, err := Add(r.scheduler, r.service, "long", cronlock.At(at(time.Minute)), func(context.Context) error {
			close(began)
			time.Sleep(10 * time.Minute)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		<-began

		before := len(w.ran())
		for range 50 {
			if err := r.RunNow(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}

		till(10 * time.Minute)
		if n := len(r.scheduler.Jobs()); n > 5 || len(w.ran()) != before {
			t.Errorf("gocron has %d jobs; %d runs", n, len(w.ran())-before)
		}

		till(11*time.Minute + 30*time.Second)
		if ran := w.ran(); len(ran) <= before || !ran[len(ran)-1].Equal(at(10*time.Minute)) {
			t.Errorf("ran %v", ran)
		}

		till(13*time.Minute + 30*time.Second)
		if n := len(r.scheduler.Jobs()); n != 2 {
			t.Errorf("gocron keeps %d jobs", n)
		}
	})
}

// Jobs of a scheduler that is stopped do not count as removed.
func TestStopJobsRemovesNothing(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, w *world) {
		r := w.replica(cronlock.Every(time.Minute), nil)
		for range 3 {
			time.Sleep(90 * time.Second)
			if err := r.scheduler.StopJobs(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(90 * time.Second)
			r.scheduler.Start()
		}
		till(12*time.Minute + 30*time.Second)
		if ran := w.ran(); !ran[len(ran)-1].Equal(at(12 * time.Minute)) {
			t.Errorf("ran %v", ran)
		}
	})
}
