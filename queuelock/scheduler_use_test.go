package queuelock

import (
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for systems without zones

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/testutil"
)

// Cronspecs mean the same as in asynq, except when clocks change. Cronspecs with seconds mean the same as in
// robfig/cron.
func TestCronspecs(t *testing.T) {
	now := time.Date(2026, 3, 28, 12, 0, 7, 500, time.UTC)
	seconds := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	for spec, theirs := range map[string]cron.Schedule{
		"* * * * *":         must(cron.ParseStandard("* * * * *")),
		"30 2 * * *":        must(cron.ParseStandard("30 2 * * *")),
		"15 */2 1-5 * wed":  must(cron.ParseStandard("15 */2 1-5 * wed")),
		"@daily":            must(cron.ParseStandard("@daily")),
		"0 0 29 2 *":        must(cron.ParseStandard("0 0 29 2 *")),
		"*/20 30 2,3 * * *": must(seconds.Parse("*/20 30 2,3 * * *")),
	} {
		for _, in := range []*time.Location{time.UTC, must(time.LoadLocation("Asia/Tokyo"))} {
			next := must(parseCronspec(spec, in))
			for at, want := now, now.In(in); want.Before(now.AddDate(0, 0, 5)); {
				if at, want = next(at), theirs.Next(want); !at.Equal(want) {
					t.Fatalf("%q in %v: %v, asynq's %v", spec, in, at, want)
				}
			}
		}
	}
}

// Cronspecs with @every count from 1970.
func TestCronspecsThatCount(t *testing.T) {
	now := time.Date(2026, 3, 28, 12, 0, 7, 500, time.UTC)
	for spec, period := range map[string]time.Duration{"@every 30s": 30 * time.Second, "@every 1m30s": 90 * time.Second, "@every 7s": 7 * time.Second, "@every 2.5s": 2500 * time.Millisecond} {
		next := must(parseCronspec(spec, time.UTC))
		for at := now; at.Before(now.Add(time.Hour)); {
			before := at
			if at = next(at); at.UnixMilli()%period.Milliseconds() != 0 || at.Nanosecond()%1e6 != 0 || !at.After(before) || at.Sub(before) > period {
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
		_, err = m.NewScheduler(r.client, "billing", time.Local)
		wantFaults(t, err, "the local time zone may differ between replicas")
		_, err = m.NewScheduler(r.client, "caf\xe9", time.UTC)
		wantFaults(t, err, "not valid UTF-8")

		p := r.idleReplica()
		task := asynq.NewTask("task", nil)
		for spec, want := range map[string]string{
			"": "empty", "* * *": "5 to 6 fields", "0 0 30 2 *": "never falls due", ", * * * *": "never falls due",
			"CRON_TZ=UTC": "names a time zone", "TZ=UTC * * * * *": "names a time zone", "CRON_TZ= * * * * *": "names a time zone", "TZ=UTC @every 30s": "names a time zone",
			"@every 999ms": "at least a second", "@every -1m": "at least a second", "@every": "descriptor", "@every soon": "soon",
		} {
			wantFaults(t, p.Register("entry", spec, task), "cronspec", want)
		}

		wantFaults(t, p.Register("", "* * *", asynq.NewTask("", nil), ID("t"), nil), "cronspec", "name is empty", "no type", theID, "option is nil")
		wantFaults(t, p.Register("caf\xe9", "* * * * *", nil), "not valid UTF-8", "task is nil")
		wantFaults(t, p.Register("entry", "* * * * *", task, asynq.Unique(time.Hour), asynq.Group("g"), asynq.Retention(time.Hour-1)), "Unique", `Group("g")`, "Retention", "1h0m0s")
		if err := p.Register("entry", "* * * * *", task, asynq.Retention(time.Hour), asynq.Queue("other")); err != nil {
			t.Error(err)
		}

		wantFaults(t, p.Register("entry", "@daily", task), `entry "entry"`, "another entry")
		for want, c := range map[string]struct {
			task *asynq.Task
			opt  asynq.Option
		}{
			"queue name must contain one or more characters": {task, asynq.Queue(" ")},
			"invalid UTF-8":                         {asynq.NewTask("caf\xe9", nil), asynq.MaxRetry(1)},
			"string field contains invalid":         {asynq.NewTaskWithHeaders("task", nil, map[string]string{"caf\xe9": "1"}), asynq.MaxRetry(1)},
			"the task is nil or has no type":        {asynq.NewTask(" ", nil), asynq.MaxRetry(1)},
			"asynq.NewTask was given asynq.Unique":  {asynq.NewTask("task", nil, asynq.Unique(time.Hour)), asynq.ProcessIn(time.Minute)},
			"asynq.NewTask was given asynq.Group":   {asynq.NewTask("task", nil, asynq.Group("g")), asynq.MaxRetry(1)},
			"Unique TTL cannot be less than 1s":     {asynq.NewTask("task", nil, asynq.Unique(time.Millisecond)), asynq.MaxRetry(1)},
			"the options of asynq.NewTask are kept": {asynq.NewTask("task", nil, asynq.Queue(""), asynq.TaskID("x")), asynq.Queue("other")},
		} {
			err := p.Register("refused", "* * * * *", c.task, c.opt)
			wantFaults(t, err, map[bool]string{false: want, true: "queue name must contain"}[strings.HasPrefix(want, "the options")])
		}

		p.Shutdown()
		wantFaults(t, p.Register("other", "@daily", task), "shut down")
	})
}

// Shutdown waits for a tick that is being enqueued, and leaves later ticks to other replicas.
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

// Ticks are instants of the wall clock. With a monotonic reading, a Scheduler would not notice before the next tick
// that the clock was set.
func TestSchedulerReadsTheWallClock(t *testing.T) {
	s := must(must(New(testLocker(t))).NewScheduler(asynq.NewClientFromRedisClient(&dryRunRedis{}), "billing", time.UTC))
	defer s.Shutdown()
	if at := s.wallClock(); strings.Contains(at.String(), "m=") || time.Since(at).Abs() > time.Minute {
		t.Error(at)
	}
}
