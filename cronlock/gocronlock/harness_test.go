package gocronlock

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func init() { logging.Disable() } // go-redis would print each failed dial

// A world has the nodes, and records the ticks that the schedulers of all replicas ran. The zero time stands for a run
// by hand.
type world struct {
	t     *testing.T
	first *locktest.Locker

	mu    sync.Mutex
	ticks []time.Time
}

func bubble(t *testing.T, after time.Duration, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(after)
		f(t, &world{t: t, first: locktest.New(t)})
	})
}

// A replica has one job on a scheduler.
type replica struct {
	*Job
	service   *cronlock.Service
	scheduler gocron.Scheduler
}

// replica starts a replica.
func (w *world) replica(schedule cronlock.Schedule, scheduler []gocron.SchedulerOption, opts ...Option) *replica {
	w.t.Helper()
	r := w.idleReplica(scheduler...)
	var err error
	if r.Job, err = Add(r.scheduler, r.service, "job", schedule, w.work, opts...); err != nil {
		w.t.Fatal(err)
	}
	r.scheduler.Start()
	return r
}

// idleReplica returns a replica without a job. Its scheduler is not started.
func (w *world) idleReplica(opts ...gocron.SchedulerOption) *replica {
	w.t.Helper()
	r := &replica{}
	var err error
	if r.service, err = cronlock.New(w.first.Replica().Locker, "service"); err != nil {
		w.t.Fatal(err)
	}
	if r.scheduler, err = gocron.NewScheduler(opts...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := r.scheduler.Shutdown(); err != nil {
			w.t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := r.service.Close(ctx); err != nil {
			w.t.Error(err)
		}
	})
	return r
}

// work is the function of all jobs.
func (w *world) work(ctx context.Context) error {
	run, _ := cronlock.FromContext(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ticks = append(w.ticks, run.Tick)
	return nil
}

// ran returns the ticks so far, in the order of their starts.
func (w *world) ran() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ticks)
}

func (w *world) want(ticks ...time.Time) {
	w.t.Helper()
	if got := w.ran(); !slices.Equal(got, ticks) {
		w.t.Errorf("ran %v,\nwant %v", got, ticks)
	}
}

var midnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return midnight.Add(d) }

func till(d time.Duration) { time.Sleep(time.Until(at(d))) }
