package cronlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

func stable(context.Context) error { return nil }

// A job without a name, and one whose name another has, are refused where they are added; a name is free again once its job
// is gone, by whatever way.
func TestNames(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("0")
		add := func(name string) error {
			_, err := r.Add(name, gocron.CronJob(secondly, true), stable)
			return err
		}
		if err := add(""); err == nil || !strings.Contains(err.Error(), "name is empty") {
			t.Errorf("an empty name: %v", err)
		}
		first := r.job(gocron.CronJob(secondly, true), nil)
		if err := add("job"); err == nil || !strings.Contains(err.Error(), "another job has this name") {
			t.Errorf("a name that is taken: %v", err)
		}
		if err := first.Remove(); err != nil {
			t.Fatal(err)
		}
		second := r.job(gocron.CronJob(secondly, true), nil)
		if err := r.sched.RemoveJob(second.Handle().ID()); err != nil {
			t.Fatal(err)
		}
		third := r.job(gocron.CronJob(secondly, true), nil)
		if _, err := r.Add("bad", gocron.CronJob("no crontab", false), stable); err == nil {
			t.Error("a bad crontab was taken")
		}
		if err := add("bad"); err != nil {
			t.Errorf("the name of a job that was not added: %v", err)
		}
		if third.Name() != "job" || third.Handle().Name() != "job" || len(r.sched.Jobs()) != 2 {
			t.Errorf("%d jobs, name %q", len(r.sched.Jobs()), third.Name())
		}
	})
}

// Whoever finds the fault, the error names the job, and names it once.
func TestErrorOfAddNamesTheJob(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("0")
		r.job(gocron.CronJob(secondly, true), nil)
		for _, c := range []struct {
			name, want string
			schedule   gocron.JobDefinition
			opts       []JobOption
		}{
			{"job", "another job has this name", gocron.CronJob(secondly, true), nil},
			{"other", "attempts are 0", gocron.CronJob(secondly, true), []JobOption{AtLeastOnce(0)}},
			{"other", "crontab parse failure", gocron.CronJob("no crontab", false), nil},
			{"other", "definition is nil", nil, nil},
			{"other", "definition is nil", nil, []JobOption{AtLeastOnce(0)}},
		} {
			_, err := r.Add(c.name, c.schedule, stable, c.opts...)
			if err == nil || !strings.HasPrefix(err.Error(), "cronlock: ") || !strings.Contains(err.Error(), c.want) ||
				strings.Count(err.Error(), fmt.Sprintf("job %q", c.name)) != 1 {
				t.Errorf("%s: %v", c.want, err)
			}
		}
	})
}

// What the user gives gocron does not switch off what Add is about.
func TestOptionsOfGocron(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var f fleet
		f.w = w
		for i := range 2 {
			r := w.replica(fmt.Sprint(i))
			j := r.job(gocron.CronJob(secondly, true), nil, WithGocron(gocron.WithName("other"), gocron.WithTags("a")),
				WithGocron(gocron.WithDisabledDistributedJobLocker(true)))
			if h := j.Handle(); h.Name() != "job" || !slices.Equal(h.Tags(), []string{"a"}) {
				t.Errorf("name %q, tags %q", h.Name(), h.Tags())
			}
			r.sched.Start()
		}
		time.Sleep(3500 * time.Millisecond)
		f.atMostOnce()
		if n := len(w.ran()); n != 3 {
			t.Errorf("%d runs", n)
		}
	})
}

// A scheduler with an elector of gocron's does not ask for locks: its jobs do not run, and say so.
func TestForeignElector(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.sched = []gocron.SchedulerOption{gocron.WithDistributedElector(always{})}
		r := w.replica("0")
		errs := make(chan error, 10)
		r.job(gocron.CronJob(secondly, true), nil, listeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { errs <- err })))
		r.sched.Start()
		time.Sleep(1500 * time.Millisecond)
		if err := testutil.Receive(t, errs); !strings.Contains(err.Error(), "cronlock.WithElector") || len(w.ran()) > 0 {
			t.Errorf("error %v, runs %v", err, w.ran())
		}
	})
}

type always struct{}

func (always) IsLeader(context.Context) error { return nil }

// A job of the scheduler's own runs by the gap alone under a Locker.
func TestLocker(t *testing.T) {
	for name, opts := range map[string][]JobOption{"by default": nil, "with a gap": {WithMinGap(2900 * time.Millisecond)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				ran := func(r *replica) gocron.Task {
					return gocron.NewTask(func() {
						w.mu.Lock()
						defer w.mu.Unlock()
						w.runs = append(w.runs, ran{Run{Tick: time.Now()}, r.name, time.Now()})
					})
				}
				for i := range 3 {
					r := w.replica(fmt.Sprint(i), WithClock(skewed{defaults().clock, time.Duration(i) * 200 * time.Millisecond}))
					if _, err := r.sched.NewJob(gocron.CronJob(secondly, true), ran(r), gocron.WithDistributedJobLocker(r.Locker("job", opts...))); err != nil {
						t.Fatal(err)
					}
					r.sched.Start()
				}
				time.Sleep(20*time.Second + 500*time.Millisecond)
				if opts == nil {
					w.apart(lockerGap, 20)
				} else {
					w.apart(2900*time.Millisecond, 6)
				}
			})
		})
	}
}

// Runs under a Locker do not overlap, and a job needs a name.
func TestLockerExcludes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.replica("a"), w.replica("b")
		lock, err := a.Locker("job").Lock(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ttl)
		if _, err := b.Locker("job").Lock(t.Context(), ""); !errors.Is(err, ErrOverlap) {
			t.Errorf("during a run: %v", err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		lock, err = b.Locker("job").Lock(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := a.Locker("").Lock(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "name is empty") {
			t.Errorf("without a name: %v", err)
		}
	})
}

// A Locker refuses what can not begin any more, and gives back what it has taken for it.
func TestPlainLockerRefusesAtTheLastMoment(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		end := func() {}
		a := w.replicaOn("a", w.locks(core.WithObserver(core.Observer{
			Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
				if op.Kind == core.OpHold && strings.HasSuffix(op.Key, core.Key("run")) {
					end() // with the last lease, before the start is recorded
				}
				return ctx, nil
			}})))
		ctx, cancel := context.WithCancel(t.Context())
		end = cancel
		if _, err := a.Locker("job").Lock(ctx, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v", err)
		}
		time.Sleep(time.Minute)
		lock, err := w.replica("b").Locker("job").Lock(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A Cron is no gocron.Locker: given to a whole scheduler it would know of no job.
func TestCronIsNoLocker(t *testing.T) {
	if _, is := any(&Cron{}).(gocron.Locker); is {
		t.Error("gocron.WithDistributedLocker(cron) compiles")
	}
}

// Jobs and services with such names run beside each other, and core takes their keys.
func TestStrangeNames(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		names := []string{"a", "a/run", "a%2Frun", strings.Repeat("日", 300), strings.Repeat("日", 300) + "b", "a\nb"}
		for i := range 2 {
			r := w.replica(fmt.Sprint(i))
			for _, name := range names {
				r.add(name, gocron.CronJob(secondly, true), lasting(100*time.Millisecond))
			}
			r.sched.Start()
		}
		time.Sleep(3*time.Second + 500*time.Millisecond)
		per := map[string]int{}
		for _, r := range w.ran() {
			per[r.Job]++
		}
		for _, name := range names {
			if per[name] != 3 {
				t.Errorf("%.20q ran %d times in 3 ticks", name, per[name])
			}
		}
	})
}

// Services do not share jobs.
func TestServices(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		for _, service := range []string{"one", "two"} {
			r := w.replicaOf(service, service, w.locks())
			r.job(gocron.CronJob(secondly, true), nil)
			r.sched.Start()
		}
		time.Sleep(5*time.Second + 500*time.Millisecond)
		for tick, n := range w.perTick() {
			if n != 2 {
				t.Errorf("tick %v ran %d times in two services", tick, n)
			}
		}
		if len(w.ran()) != 10 {
			t.Errorf("%d runs", len(w.ran()))
		}
	})
}

// The error of New names every fault at once.
func TestOptionFaults(t *testing.T) {
	_, err := New(nil, nil, "", nil, WithClock(nil), WithClockLimit(0), WithOverlap(Replace+1), AtLeastOnce(0),
		WithMisfireGrace(0), WithMinGap(-1), WithRetention(-1))
	if err == nil {
		t.Fatal("New took it all")
	}
	for _, part := range []string{"locker is nil", "scheduler is nil", "service's name is empty", "an option is nil", "clock is nil",
		"clock limit is 0s", "overlap policy 3", "attempts are 0", "misfire grace is 0s", "minimum gap is -1ns", "retention is -1ns"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	bubble(t, 1, func(t *testing.T, w *world) {
		for name, opt := range map[string]Option{"attempts": AtLeastOnce(11), "retention": WithRetention(time.Minute + 2*time.Minute - 1)} {
			if _, err := New(w.locks(), scheduler(t), "service", opt); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Bad options of a job fail Add, each by its name, and the job is not added.
func TestJobOptionFaults(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("0")
		_, err := r.Add("", nil, nil, nil, WithOverlap(9), AtLeastOnce(-1), WithMisfireGrace(-1), WithMinGap(-1), WithRetention(1), WithGocron(nil))
		if err == nil {
			t.Fatal("Add took it all")
		}
		for _, part := range []string{"an option is nil", "name is empty", "definition is nil", "function is nil", "an option of gocron is nil", "overlap policy 9", "attempts are -1", "misfire grace", "minimum gap", "retention"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
		if len(r.sched.Jobs()) != 0 {
			t.Error("the job was added")
		}
		r.job(gocron.CronJob(secondly, true), nil, WithOverlap(Allow), WithRetention(2*time.Hour))
		r.sched.Start()
		time.Sleep(1500 * time.Millisecond)
		if len(w.ran()) != 1 {
			t.Errorf("%d runs of a job with good options", len(w.ran()))
		}
	})
}

// gocron tells that a job whose stop time is past is gone, and then that it is there. Another one may take its name.
func TestNameOfAJobThatIsOver(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("a")
		r.sched.Start()
		over := r.job(gocron.CronJob("0 0 * * *", false), nil,
			WithGocron(gocron.WithStopAt(gocron.WithStopDateTime(time.Now().Add(time.Hour)))))
		if _, err := over.Handle().NextRun(); err == nil {
			t.Fatal("gocron has kept the job: this test shows nothing")
		}
		r.job(gocron.CronJob(secondly, true), nil)
		time.Sleep(1500 * time.Millisecond)
		if len(w.ran()) == 0 {
			t.Errorf("no run: %v", w.failed())
		}
	})
}
