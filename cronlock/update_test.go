package cronlock

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/cronlock/leader"
)

// A job whose update fails goes on as it was, and one that was removed does not come back.
func TestUpdateFails(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("0")
		j := r.job(gocron.CronJob(secondly, true), nil)
		r.sched.Start()
		time.Sleep(2500 * time.Millisecond)
		for name, definition := range map[string]gocron.JobDefinition{
			"no crontab": gocron.CronJob("no crontab", false),
			"none":       nil,
		} {
			if err := j.Update(definition); err == nil {
				t.Errorf("%s was taken", name)
			}
		}
		time.Sleep(3 * time.Second)
		if n := len(w.ran()); n != 5 {
			t.Errorf("%d runs in 5 s, errors: %v", n, w.failed())
		}
		if err := j.Remove(); err != nil {
			t.Fatal(err)
		}
		if err := j.Update(gocron.CronJob(secondly, true)); !errors.Is(err, gocron.ErrJobNotFound) || len(r.sched.Jobs()) != 0 {
			t.Errorf("a job that was removed: %v, %d jobs", err, len(r.sched.Jobs()))
		}
	})
}

// What a new schedule names before it was the job's is not taken for missed.
func TestUpdateIsFromNowOn(t *testing.T) {
	t.Run("elected", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, w *world) {
			locks := w.locks()
			e, err := leader.New(locks, "group")
			if err != nil {
				t.Fatal(err)
			}
			w.ends = append(w.ends, func() { _ = e.Close(t.Context()) })
			updateIsFromNowOn(t, w, w.replicaOn("0", locks, WithMisfireGrace(time.Hour), WithElector(e)))
		})
	})
	t.Run("catching up", func(t *testing.T) {
		bubble(t, 1, func(t *testing.T, w *world) {
			updateIsFromNowOn(t, w, w.replica("0", WithMisfireGrace(time.Hour), WithCatchUp(10)))
		})
	})
}

func updateIsFromNowOn(t *testing.T, w *world, r *replica) {
	j := r.job(gocron.CronJob("@hourly", false), nil)
	r.sched.Start()
	time.Sleep(90*time.Minute + 10*time.Second)
	before := len(w.ran())
	if err := j.Update(gocron.CronJob("*/5 * * * *", false)); err != nil {
		t.Fatal(err)
	}
	if s, err := j.Status(t.Context(), 1); err != nil || !s.Next.Equal(time.Now().Add(4*time.Minute+50*time.Second)) {
		t.Errorf("the next tick is told as %v, %v", s.Next, err)
	}
	time.Sleep(12 * time.Minute)
	var after []string
	for _, run := range w.ran()[before:] {
		after = append(after, run.Tick.UTC().Format("15:04"))
	}
	if len(after) != 2 || after[0] != "01:35" || after[1] != "01:40" {
		t.Errorf("ran %v", after)
	}
}

// A run with which the new schedule begins at once is one of the new schedule, although gocron calls for it before it has
// told of the update.
func TestUpdateBeginsAtOnce(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.sched = []gocron.SchedulerOption{gocron.WithSchedulerMonitor(slow{})}
		var jobs []*Job
		for _, name := range []string{"0", "1"} {
			r := w.replica(name)
			jobs = append(jobs, r.job(gocron.CronJob("@yearly", false), nil,
				WithGocron(gocron.WithStartAt(gocron.WithStartImmediately()))))
			r.sched.Start()
		}
		time.Sleep(5 * time.Minute) // longer than the misfire grace, which is the gap of what begins at once
		before := len(w.ran())
		for _, j := range jobs {
			if err := j.Update(gocron.DurationJob(time.Hour)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
		}
		if n := len(w.ran()) - before; n != 1 {
			t.Errorf("%d runs within the gap of an hour: %v; errors: %v", n, w.ran()[before:], w.failed())
		}
	})
}

// slow is a monitor that keeps the caller of gocron for a second when a job was added.
type slow struct{}

func (slow) JobRegistered(gocron.Job)                            { time.Sleep(time.Second) }
func (slow) SchedulerStarted()                                   {}
func (slow) SchedulerStopped()                                   {}
func (slow) SchedulerShutdown()                                  {}
func (slow) JobUnregistered(gocron.Job)                          {}
func (slow) JobStarted(gocron.Job)                               {}
func (slow) JobRunning(gocron.Job)                               {}
func (slow) JobFailed(gocron.Job, error)                         {}
func (slow) JobCompleted(gocron.Job)                             {}
func (slow) JobExecutionTime(gocron.Job, time.Duration)          {}
func (slow) JobSchedulingDelay(gocron.Job, time.Time, time.Time) {}
func (slow) ConcurrencyLimitReached(string, gocron.Job)          {}

// gocron refuses a start that is past. A job that was given one runs by hand, again and late all the same, can be updated,
// and nothing from before its start is caught up.
func TestStartOfThePast(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("0", WithCatchUp(10))
		start := time.Now().Add(30 * time.Second)
		j := r.job(gocron.CronJob("*/10 * * * * *", true), nil, WithGocron(gocron.WithStartAt(gocron.WithStartDateTime(start))))
		time.Sleep(45 * time.Second) // of the ticks at 30 and 40 gocron does not tell
		r.sched.Start()
		time.Sleep(4 * time.Second)
		if n := len(w.ran()); n != 2 || w.ran()[0].Tick.Before(start) {
			t.Errorf("caught up: %v; errors: %v", w.ran(), w.failed())
		}
		if err := errors.Join(j.RunNow(), j.Trigger(t.Context(), "")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if n := len(w.ran()); n != 4 {
			t.Errorf("by hand and by trigger: %v; errors: %v", w.ran(), w.failed())
		}
		if err := j.Update(gocron.CronJob("5 * * * * *", true)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := len(w.ran()); n != 5 {
			t.Errorf("after the update: %v; errors: %v", w.ran(), w.failed())
		}
	})
}

// Runs beside the schedule leave no goroutine of gocron's behind, which has one for each job in singleton mode.
func TestSingletonsLeaveNothing(t *testing.T) {
	serialBubble(t, 1, func(t *testing.T, w *world) {
		r := w.replica("0")
		j := r.job(gocron.DurationJob(time.Hour), nil, WithGocron(gocron.WithSingletonMode(gocron.LimitModeWait)))
		r.sched.Start()
		runNow := func(times int) (goroutines int) {
			for range times {
				if err := j.RunNow(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			synctest.Wait()
			return runtime.NumGoroutine()
		}
		before := runNow(10)
		if n := runNow(50); n > before+10 || w.manual() != 60 {
			t.Errorf("%d goroutines, before %d; %d runs", n, before, w.manual())
		}
	})
}

// gocron removes a job before it runs the last tick before its stop time. That runs all the same, and again where its replica
// dies, also when the time is past.
func TestLastTickBeforeAStop(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		stop := WithGocron(gocron.WithStopAt(gocron.WithStopDateTime(time.Now().Add(35 * time.Second))))
		a, kill := w.mortal("a", AtLeastOnce(2))
		b := w.replica("b", AtLeastOnce(2), WithClock(skewed{defaults().clock, -100 * time.Millisecond}))
		for _, r := range []*replica{a, b} {
			r.job(gocron.CronJob("*/10 * * * * *", true), func(ctx context.Context) error {
				if run, _ := FromContext(ctx); run.Attempt == 1 && run.Tick.Second() == 30 {
					time.Sleep(time.Second)
					kill()
					<-ctx.Done()
				}
				return ctx.Err()
			}, stop)
			r.sched.Start()
		}
		time.Sleep(time.Minute)
		var last []ran
		for _, run := range w.ran() {
			if run.Tick.Second() == 30 {
				last = append(last, run)
			}
		}
		if len(last) != 2 || last[0].replica != "a" || last[1].replica != "b" {
			t.Fatalf("ran %v; errors: %v", last, w.failed())
		}
		attemptsInOrder(t, last)
	})
}
