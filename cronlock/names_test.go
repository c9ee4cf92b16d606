package cronlock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
)

func stable(context.Context) error { return nil }

// Names that the compiler made up are refused, and no others.
func TestUnstableNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"main.main.func1": false, "main.init.func12": false, "main.main.func1.2": false, "main.main.func1.func3": false,
		"main.(*T).Run.func1": false, "main.glob..func1": false, "main.main.gowrap1": false, "main.f.func1-range1": false,
		"main.nightly": true, "main.(*T).Run": true, "main.(*T).Run-fm": true, "nightly": true, "func1": true, "report.2024": true,
		"billing.func": true, "a.function1": true,
	} {
		if err := checkName(name); (err == nil) != ok || err != nil && !errors.Is(err, ErrJob) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A job without a name of its own has that of its function, here a closure. The log
// says once that it does not run, and AfterLockError each time.
func TestClosureNameRefused(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		var log bytes.Buffer
		r := w.replica("0", WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		ran := 0
		if _, err := r.sched.NewJob(gocron.CronJob(secondly, true), gocron.NewTask(func() { ran++ }),
			gocron.WithEventListeners(gocron.AfterLockError(r.note))); err != nil {
			t.Fatal(err)
		}
		r.sched.Start()
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if strings.Count(log.String(), "a job does not run") != 1 || !strings.Contains(log.String(), "gocron.WithName") {
			t.Errorf("log: %s", log.String())
		}
		errs := w.failed()
		if ran != 0 || len(errs) != 2 || !errors.Is(errs[0], ErrJob) || !strings.Contains(errs[0].Error(), "gocron.WithName") {
			t.Errorf("%d runs, errors %v", ran, errs)
		}
	})
}

// Two jobs of one name do not run: they would count as one. When one is removed, the other runs.
func TestTwoJobsOfOneName(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		var log bytes.Buffer
		r := w.replica("0", WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		r.job(gocron.CronJob(secondly, true), nil)
		second := r.job(gocron.CronJob(secondly, true), nil)
		r.sched.Start()
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if strings.Count(log.String(), "a job does not run") != 1 || !strings.Contains(log.String(), "2 jobs of this process") {
			t.Errorf("log: %s", log.String())
		}
		errs := w.failed()
		if len(w.ran()) != 0 || len(errs) != 4 {
			t.Fatalf("%d runs, errors %v", len(w.ran()), errs)
		}
		for _, err := range errs {
			if !errors.Is(err, ErrJob) || !strings.Contains(err.Error(), "2 jobs of this process") {
				t.Error(err)
			}
		}
		if err := r.sched.RemoveJob(second.ID()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if len(w.ran()) != 2 {
			t.Errorf("%d runs after the removal", len(w.ran()))
		}
	})
}

// A scheduler with the plain locker does not tell of its jobs. They run by the gap alone, and not without one.
func TestPlainLocker(t *testing.T) {
	for _, gap := range []time.Duration{0, 900 * time.Millisecond} {
		t.Run(fmt.Sprint(gap), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				for i := range 3 {
					c, err := New(w.locks(), "service", WithLogger(quiet), WithMinGap(gap))
					if err != nil {
						t.Fatal(err)
					}
					s, err := gocron.NewScheduler(gocron.WithDistributedLocker(c))
					if err != nil {
						t.Fatal(err)
					}
					w.ends = append(w.ends, func() { s.Shutdown(); c.Close(context.Background()) })
					r := &replica{Cron: c, w: w, name: fmt.Sprint(i), sched: s}
					r.job(gocron.CronJob(secondly, true), nil)
					s.Start()
				}
				time.Sleep(20*time.Second + 500*time.Millisecond)
				if gap > 0 {
					w.apart(900*time.Millisecond, 20)
					return
				}
				errs := w.failed()
				if len(w.ran()) != 0 || len(errs) == 0 {
					t.Fatalf("%d runs, %d errors", len(w.ran()), len(errs))
				}
				for _, err := range errs {
					if !errors.Is(err, ErrJob) || !strings.Contains(err.Error(), "Options") {
						t.Error(err)
					}
				}
			})
		})
	}
}

// No name of a service or job makes up the key of another, and none is too long for a key.
func TestKeysAreNotForged(t *testing.T) {
	long := strings.Repeat("x", 600)
	names := []string{"a", "b", "a/b", "b/a", "a%2Fb", "a%", "%%", "", ".", "..", "run", "gap", "tick/x", "a/tick/2000-01-01T00:00:00Z",
		"ä", "日本", "a b", "a\x00b", long, long + "y", long + "/", strings.Repeat("ä", 300), strings.Repeat("ä", 300) + "b"}
	of := map[string]string{}
	for _, service := range names {
		if service == "" {
			continue
		}
		for _, name := range names {
			cl := &claim{c: &Cron{service: service}, job: newJob(name), id: "2000-01-01T00:00:00Z"}
			onMonday := &claim{c: cl.c, job: cl.job, slot: "Monday/1"}
			for rest, key := range map[string]string{"run": cl.runKey(), "gap": cl.gapKey(), "gap/Monday/1": onMonday.gapKey(), "tick": cl.tickKey(), "attempt": cl.attemptKey(2)} {
				what := fmt.Sprintf("%.20q %.20q %s %d %d", service, name, rest, len(service), len(name))
				if other, taken := of[key]; taken {
					t.Errorf("%s and %s have the same key %q", what, other, key)
				}
				of[key] = what
				if len(key) > 512 {
					t.Errorf("%s has a key of %d bytes", what, len(key))
				}
			}
		}
	}
}

// Jobs and services with such names run beside each other, and core takes their keys.
func TestStrangeNames(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		names := []string{"a", "a/run", "a%2Frun", strings.Repeat("日", 300), strings.Repeat("日", 300) + "b", "a\nb"}
		for i := range 2 {
			r := w.replica(fmt.Sprint(i))
			for _, name := range names {
				r.job(gocron.CronJob(secondly, true), lasting(100*time.Millisecond), gocron.WithName(name))
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
			c, err := New(w.locks(), service, WithLogger(quiet))
			if err != nil {
				t.Fatal(err)
			}
			s, err := gocron.NewScheduler(c.Options()...)
			if err != nil {
				t.Fatal(err)
			}
			w.ends = append(w.ends, func() { s.Shutdown(); c.Close(context.Background()) })
			(&replica{Cron: c, w: w, name: service, sched: s}).job(gocron.CronJob(secondly, true), nil)
			s.Start()
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
	_, err := New(nil, "", nil, WithClock(nil), WithLogger(nil), WithClockLimit(0), WithOverlap(Replace+1), AtLeastOnce(0),
		WithMisfireGrace(0), WithMinGap(-1), WithRetention(-1))
	if err == nil {
		t.Fatal("New took it all")
	}
	for _, part := range []string{"locks is nil", "service's name is empty", "an option is nil", "clock is nil", "logger is nil",
		"clock limit is 0s", "overlap policy 3", "attempts are 0", "misfire grace is 0s", "minimum gap is -1ns", "retention is -1ns"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	bubble(t, 1, func(t *testing.T, w *world) {
		for name, opt := range map[string]Option{"attempts": AtLeastOnce(maxAttempts + 1), "retention": WithRetention(time.Minute + 2*time.Minute - 1)} {
			if _, err := New(w.locks(), "service", opt); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Bad options of a job fail NewJob, each by its name, and the job is not added.
func TestJobOptionFaults(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("0")
		_, err := r.sched.NewJob(gocron.CronJob(secondly, true), r.Task(stable), gocron.WithName("job"),
			r.Job(nil, WithOverlap(9), AtLeastOnce(-1), WithMisfireGrace(-1), WithMinGap(-1), WithRetention(1)))
		if err == nil {
			t.Fatal("NewJob took it all")
		}
		for _, part := range []string{"an option is nil", "overlap policy 9", "attempts are -1", "misfire grace", "minimum gap", "retention"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
		if len(r.sched.Jobs()) != 0 {
			t.Error("the job was added")
		}
		r.job(gocron.CronJob(secondly, true), nil, r.Job(WithOverlap(Allow), WithRetention(2*time.Hour)))
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
		over, err := r.sched.NewJob(gocron.CronJob("0 0 * * *", false), gocron.NewTask(func() {}), gocron.WithName("job"),
			gocron.WithStopAt(gocron.WithStopDateTime(time.Now().Add(time.Hour))))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := over.NextRun(); err == nil {
			t.Fatal("gocron has kept the job: this test shows nothing")
		}
		r.job(gocron.CronJob(secondly, true), nil)
		time.Sleep(1500 * time.Millisecond)
		if len(w.ran()) == 0 {
			t.Errorf("no run: %v", w.failed())
		}
	})
}
