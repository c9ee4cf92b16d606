package gocronlock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/testutil/locktest"
)

func clock(ahead time.Duration) []gocron.SchedulerOption {
	return []gocron.SchedulerOption{gocron.WithClock(skewed{clockwork.NewRealClock(), ahead})}
}

// Listeners hear of a run by tick, of one by hand and of one that starts late; afterwards gocron has one job.
func TestListeners(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, w *world) {
		var before, after, refused atomic.Int32
		r := w.replica(cronlock.Every(time.Hour), nil, nil, Tags("nightly"), Listeners(
			gocron.BeforeJobRuns(func(uuid.UUID, string) { before.Add(1) }),
			gocron.AfterJobRuns(func(uuid.UUID, string) { after.Add(1) }),
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused.Add(1) }),
		))
		till(time.Minute) // midnight's tick, late
		if err := r.RunNow(); err != nil {
			t.Fatal(err)
		}
		till(time.Hour + time.Minute)
		w.want(midnight, time.Time{}, at(time.Hour))
		if before.Load() != 3 || after.Load() != 3 {
			t.Errorf("listeners heard of %d begins and %d ends of 3 runs", before.Load(), after.Load())
		}
		if jobs := r.scheduler.Jobs(); len(jobs) != 1 || jobs[0].ID() != r.Handle().ID() || r.Handle().Tags()[0] != "nightly" {
			t.Errorf("gocron's jobs are %v", jobs)
		}
	})
}

// RunNow of a scheduler that does not run, and runs of the engine meanwhile, block nothing.
func TestStoppedScheduler(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, w *world) {
		r := w.replica(cronlock.Every(time.Minute), nil, nil)
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

// A schedule without further instants does not make gocron loop, after the last one and from the beginning.
func TestScheduleEnds(t *testing.T) {
	bubble(t, 0, func(t *testing.T, w *world) {
		r := w.replica(cronlock.At(at(time.Minute)), nil, nil)
		till(10 * time.Minute)
		if _, err := Add(r.scheduler, r.service, "over", cronlock.At(at(2*time.Minute)), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		till(20 * time.Minute)
		w.want(at(time.Minute))
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
		w.replica(cronlock.Every(time.Hour), nil, []gocron.SchedulerOption{gocron.WithDistributedElector(always{})},
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

// Remove ends the context of a run, also of one that started late or by hand.
func TestRemoveEndsRuns(t *testing.T) {
	for name, start := range map[string]func(r *replica) error{
		"at the tick": func(*replica) error { till(time.Hour + time.Second); return nil },
		"late":        func(r *replica) error { return nil },
		"by hand":     func(r *replica) error { till(30 * time.Minute); return r.RunNow() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, time.Second, func(t *testing.T, w *world) {
				ended := make(chan time.Time, 1)
				r := w.replica(cronlock.Every(time.Hour), func(ctx context.Context) error {
					if len(w.ran()) == 1 && name != "late" {
						return nil // of midnight
					}
					<-ctx.Done()
					ended <- time.Now()
					return ctx.Err()
				}, nil, Tags("one"), Tags("two"))
				if tags := r.Handle().Tags(); len(tags) != 3 || tags[0] != "one" || tags[1] != "two" {
					t.Errorf("tags %v", tags)
				}
				time.Sleep(time.Second)
				if err := start(r); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				now := time.Now()
				if err := r.Remove(); err != nil {
					t.Error(err)
				}
				if at := <-ended; at != now {
					t.Errorf("the context ended after %v", at.Sub(now))
				}
			})
		})
	}
}

// Remove leaves nothing behind, and the name can be used again.
func TestRemove(t *testing.T) {
	bubble(t, time.Second, func(t *testing.T, w *world) {
		r := w.replica(cronlock.Every(time.Minute), nil, nil)
		till(90 * time.Second)
		if err := r.Remove(); err != nil {
			t.Fatal(err)
		}
		till(5 * time.Minute)
		w.want(midnight, at(time.Minute))
		again, err := Add(r.scheduler, r.service, "job", cronlock.Every(time.Minute), func(context.Context) error { return nil })
		if err != nil || again.Handle().Name() != "job" {
			t.Errorf("adding it again: %v", err)
		}
	})
}

// Add names what is wrong, and adds nothing.
func TestAddRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := Add(nil, nil, "job", nil, nil); err == nil || !strings.Contains(err.Error(), "the scheduler is nil\n") {
			t.Errorf("without scheduler and service: %v", err)
		}
	})
	bubbleAdd(t)
}

func bubbleAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		w.first = locktest.New(t)
		r := w.replica(cronlock.Every(time.Minute), nil, nil)
		if _, err := Add(r.scheduler, r.service, "other", cronlock.Crontab("61 * * * *", time.UTC), nil); err == nil || len(r.scheduler.Jobs()) != 1 {
			t.Errorf("a bad job: %v, and gocron has %d jobs", err, len(r.scheduler.Jobs()))
		}
		if err := r.scheduler.Shutdown(); err != nil {
			t.Fatal(err)
		}
		if _, err := Add(r.scheduler, r.service, "third", cronlock.Every(time.Minute), func(context.Context) error { return nil }); err == nil {
			t.Error("added to a scheduler that is shut down")
		}
		if _, err := r.service.Add("third", cronlock.Every(time.Minute), func(context.Context) error { return nil }); err != nil {
			t.Errorf("the service kept a job that gocron refused: %v", err)
		}
	})
}

// A tick that a listener of one replica refuses runs on another one.
func TestListenerRefuses(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		slow := gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(uuid.UUID, string) error {
			time.Sleep(300 * time.Millisecond)
			return errors.New("not here")
		})
		w.replica(cronlock.Every(time.Minute), nil, nil, Listeners(slow))
		w.replica(cronlock.Every(time.Minute), nil, nil)
		till(22*time.Minute + 30*time.Second)
		w.want(every(2*time.Minute, time.Minute, 21)...)
	})
}

// Limits of the scheduler drop calls, which costs no tick.
func TestSchedulerLimits(t *testing.T) {
	bubble(t, 30*time.Minute, func(t *testing.T, w *world) {
		r := w.replica(cronlock.Every(time.Hour), nil, []gocron.SchedulerOption{gocron.WithLimitConcurrentJobs(1, gocron.LimitModeReschedule)})
		if _, err := r.scheduler.NewJob(gocron.CronJob("59 * * * *", false), gocron.NewTask(func() { time.Sleep(70 * time.Second) })); err != nil {
			t.Fatal(err)
		}
		till(4*time.Hour + 2*time.Minute)
		w.want(every(time.Hour, time.Hour, 4)...)
	})
}
