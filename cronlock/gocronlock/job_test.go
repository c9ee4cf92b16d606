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
)

// RunNow of a scheduler that does not run, and runs of the engine meanwhile, block nothing.
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
		till(3*time.Minute + 30*time.Second) // the engine calls for three ticks
		r.scheduler.Start()
		till(5*time.Minute + 30*time.Second)
		ran := w.ran()
		if ran[len(ran)-1] != at(5*time.Minute) || len(ran) < 4 {
			t.Errorf("ran %v", ran)
		}
	})
}

// A run by hand that ends with the scheduler's context does not hold up StopJobs.
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

// A schedule without further instants does not make gocron loop, after the last one and from the beginning.
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

// A scheduler with an elector of its own does not ask for locks: the job does not run, and says why.
func TestElectorOfTheScheduler(t *testing.T) {
	bubble(t, 30*time.Minute, func(t *testing.T, w *world) {
		var told atomic.Value
		w.replica(cronlock.Every(time.Hour), []gocron.SchedulerOption{gocron.WithDistributedElector(always{})},
			Listeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { told.Store(err) })))
		till(time.Hour + time.Second/2)
		w.want()
		if err, _ := told.Load().(error); !errors.Is(err, errNotAsked) {
			t.Errorf("the listener was told %v", err)
		}
	})
}

type always struct{}

func (always) IsLeader(context.Context) error { return nil }

// Add names what is wrong, and adds nothing.
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
