package queuelock

import (
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // where the system has no zones

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/testutil"
)

// Cronspecs mean what they mean in asynq.
func TestCronspecs(t *testing.T) {
	berlin := must(time.LoadLocation("Europe/Berlin"))
	now := time.Date(2026, 3, 28, 12, 0, 7, 500, time.UTC) // the night before the clocks change
	for _, spec := range []string{"* * * * *", "30 2 * * *", "CRON_TZ=Asia/Tokyo 0 3 * * *", "@daily", "0 0 29 2 *"} {
		for _, in := range []*time.Location{time.UTC, berlin} {
			next, theirs := must(parse(spec, in)), must(cron.ParseStandard(spec))
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
		next := must(parse(spec, time.UTC))
		for at := now; at.Before(now.Add(time.Hour)); {
			before := at
			if at = next(at); at.Unix()%period != 0 || at.Nanosecond() != 0 || !at.After(before) || at.Sub(before) > time.Duration(period)*time.Second {
				t.Fatalf("%q: %v after %v", spec, at, before)
			}
		}
	}
}

func TestSchedulerMisuse(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		m := r.middleware(r.locker())
		_, err := m.NewScheduler(nil, "", nil)
		wantFaults(t, err, "client is nil", "the service name", "location is nil")
		_, err = m.NewScheduler(r.client, "caf\xe9", time.UTC)
		wantFaults(t, err, "not valid UTF-8")
		p := r.idleReplica()
		task := asynq.NewTask("task", nil)
		for spec, want := range map[string]string{"": "empty", "* * *": "5 fields", "CRON_TZ=UTC": "time zone", "TZ=x * * * * *": "location", "0 0 30 2 *": "five years"} {
			wantFaults(t, p.Register("entry", spec, task), "cronspec", want)
		}
		wantFaults(t, p.Register("", "* * *", asynq.NewTask("", nil), ID("t"), nil), "cronspec", "name is empty", "no type", theID, "option is nil")
		wantFaults(t, p.Register("caf\xe9", "* * * * *", nil), "not valid UTF-8", "task is nil")
		wantFaults(t, p.Register("entry", "* * * * *", task, asynq.Unique(time.Hour), asynq.Group("g"), asynq.Retention(time.Hour-1)), "Unique", `Group("g")`, "Retention", "1h0m0s")
		if err := p.Register("entry", "* * * * *", task, asynq.Retention(time.Hour), asynq.Queue("other")); err != nil {
			t.Error(err)
		}
		wantFaults(t, p.Register("entry", "@daily", task), `entry "entry"`, "another entry")
		p.Shutdown()
		wantFaults(t, p.Register("other", "@daily", task), "shut down")
	})
}

// Shutdown waits for what is being enqueued, and leaves the rest to others.
func TestShutdownOfAScheduler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		at := r.untilNext(half, time.Second)
		p, other := r.replica(0, half), r.idleReplica()
		p.queue.OnRequest(func(cmd redis.Cmder) (a testutil.Action) {
			if isEnqueue(cmd) {
				a.ReplyDelay = 500 * time.Millisecond
			}
			return a
		})
		r.pass(1200 * time.Millisecond)
		p.Shutdown()
		p.Shutdown()
		must0(t, other.Register("entry", "@every 30s", asynq.NewTask("task", nil)))
		r.pass(half)
		want := ticksFrom(at.Add(-1), half, 2)
		if got := r.pending(); !slices.Equal(got, want) || r.count(EventTickMissed) > 0 {
			t.Errorf("%v, want %v; %v", got, want, r.events.Counts())
		}
	})
}
