package queuelock

import (
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	_ "time/tzdata" // where the system has no zones

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// Cronspecs mean what they mean in asynq.
func TestCronspecs(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 28, 12, 0, 7, 500, time.UTC) // the night before the clocks change
	for _, spec := range []string{"* * * * *", "30 2 * * *", "CRON_TZ=Asia/Tokyo 0 3 * * *", "@daily", "0 0 29 2 *"} {
		for _, in := range []*time.Location{time.UTC, berlin} {
			next, err := parse(spec, in, now)
			theirs, their := cron.ParseStandard(spec)
			if err != nil || their != nil {
				t.Fatal(err, their)
			}
			for at, want := now, now.In(in); want.Before(now.AddDate(0, 0, 5)); {
				if at, want = next(at), theirs.Next(want); !at.Equal(want) {
					t.Fatalf("%q in %v: %v, asynq's %v", spec, in, at, want)
				}
			}
		}
	}
}

// Those that count from a start count from 1970.
func TestCronspecsThatCount(t *testing.T) {
	now := time.Date(2026, 3, 28, 12, 0, 7, 500, time.UTC)
	for spec, period := range map[string]int64{"@every 30s": 30, "@every 1m30s": 90, "@every 7s": 7, "@every 10ms": 1, "@every 2.5s": 2} {
		next, err := parse(spec, time.UTC, now)
		if err != nil {
			t.Fatal(err)
		}
		for at := now; at.Before(now.Add(time.Hour)); {
			before := at
			if at = next(at); at.Unix()%period != 0 || at.Nanosecond() != 0 || !at.After(before) || at.Sub(before) > time.Duration(period)*time.Second {
				t.Fatalf("%q: %v after %v", spec, at, before)
			}
		}
	}
}

func TestSchedulerMisuse(t *testing.T) {
	_, err := NewScheduler(nil, nil, "", nil, WithLocation(nil))
	wantFaults(t, err, "client is nil", "the Locker was not made", "service's name", "an option is nil", "location is nil")
	_, err = NewScheduler(nil, nil, "caf\xe9")
	wantFaults(t, err, "not valid UTF-8")
	bubble(t, func(t *testing.T, r *rig) {
		taken := r.locks.Replica(core.WithKeyPrefix("asynq:"))
		_, err := NewScheduler(r.client, taken.Locker, "billing")
		wantFaults(t, err, "belongs to asynq")
		p := r.idleReplica()
		task := asynq.NewTask("task", nil)
		for spec, want := range map[string]string{"": "empty", "* * *": "5 fields", "CRON_TZ=UTC": "time zone", "TZ=x * * * * *": "location", "0 0 30 2 *": "five years"} {
			_, err := p.Register(spec, task)
			wantFaults(t, err, "cronspec", want)
		}
		_, err = p.RegisterAs("", "* * *", asynq.NewTask("", nil), asynq.TaskID("t"), nil)
		wantFaults(t, err, "cronspec", "name is empty", "no type", `TaskID("t")`, "option is nil")
		_, err = p.RegisterAs("caf\xe9", "* * * * *", task)
		wantFaults(t, err, "not valid UTF-8")
		_, err = p.Register("* * * * *", nil)
		wantFaults(t, err, "task is nil")
		if _, err := p.Register("* * * * *", task); err != nil {
			t.Error(err)
		}
		_, err = p.Register("* * * * *", asynq.NewTask("task", nil), asynq.Queue("other"))
		wantFaults(t, err, "registered already", "RegisterAs")
		if _, err := p.RegisterAs("other", "* * * * *", task, asynq.Queue("other")); err != nil {
			t.Error(err)
		}
		p.Shutdown()
		_, err = p.Register("@daily", task)
		wantFaults(t, err, "shut down")
		wantFaults(t, p.Start(), "shut down")
	})
}

// Shutdown waits for what is being enqueued, and leaves the rest to others.
func TestShutdownOfAScheduler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.untilNext(half, time.Second)
		want := ticksFrom(time.Now(), half, 2)
		p, other := r.idleReplica(), r.idleReplica()
		p.Shutdown() // not started: it is over
		wantFaults(t, p.Run(), "shut down")
		p = r.replica(0, half)
		wantFaults(t, p.Start(), "running already")
		p.onEnqueue(func() testutil.Action { return testutil.Action{ReplyDelay: 500 * time.Millisecond} })
		r.pass(1200 * time.Millisecond)
		p.Shutdown()
		if n := r.events.Running(core.OpHold); n > 0 || r.count(EventTickEnqueued) != 1 {
			t.Errorf("%d ticks are being enqueued, events %v", n, r.events.Counts())
		}
		p.Shutdown()
		if _, err := other.RegisterAs("entry", "@every 30s", asynq.NewTask("task", nil)); err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		r.pass(half)
		if got := r.pending(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] || r.count(EventTickMissed) > 0 {
			t.Errorf("%v, want %v; %v", got, want, r.events.Counts())
		}
	})
}

// Run ends with a signal, or Shutdown.
func TestRunEnds(t *testing.T) {
	kept := make(chan os.Signal, 1)
	signal.Notify(kept, syscall.SIGTERM) // so that it does not end the test
	t.Cleanup(func() { signal.Stop(kept) })
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	client := asynq.NewClientFromRedisClient(testutil.NewNodes(t, 1)[0].Client())
	for name, end := range map[string]func(*Scheduler) error{
		"signal":   func(*Scheduler) error { return self.Signal(syscall.SIGTERM) },
		"Shutdown": func(s *Scheduler) error { s.Shutdown(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "signal" && runtime.GOOS == "windows" {
				t.Skip("Windows has no signals that a process could send")
			}
			s, err := NewScheduler(client, locktest.New(t).Locker, "billing")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- s.Run() }()
			testutil.Await(t, "Run has started", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.started })
			testutil.Await(t, "Run returns", func() bool { // which may not listen yet
				if err := end(s); err != nil {
					t.Fatal(err)
				}
				return len(done) > 0
			})
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// A tick that is missed because asynq's Redis is down, or because the Locker is closed, is logged with that as the cause.
func TestMissedTickNamesTheCause(t *testing.T) {
	for cause, spoil := range map[string]func(r *rig, s *replica){
		"asynq: ":                   func(r *rig, _ *replica) { r.queue.Down() },
		core.ErrClosed.Error():      func(r *rig, s *replica) { s.locks.Close(r.t.Context()) },
		core.ErrUnavailable.Error(): func(r *rig, _ *replica) { r.nodes[0].Down(); r.nodes[1].Down() },
	} {
		t.Run(cause, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.untilNext(half, 5*time.Second)
				s := r.replica(0, half)
				spoil(r, s)
				r.pass(half + 10*time.Second)
				s.Shutdown()
				r.queue.Up()
				r.pass(time.Minute) // go-redis dials in the background
				if r.count(EventTickMissed) != 1 || r.logs.count(cause) == 0 || r.logs.count("ERROR") != 1 {
					t.Errorf("%v\n%s", r.events.Counts(), &r.logs)
				}
				for _, line := range r.logs.lines {
					if strings.HasPrefix(line, "ERROR") && !strings.Contains(line, cause) {
						t.Error(line)
					}
				}
			})
		})
	}
}
