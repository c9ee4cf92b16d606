package queuelock

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/internal/race"
)

const half = 30 * time.Second

// Three replicas with different clocks enqueue each tick once, and two servers process it once. A tick is enqueued when
// the fastest clock shows its time.
func TestSchedulersEnqueueOnce(t *testing.T) {
	race.SkipSweep(t)
	for _, offs := range [][]time.Duration{{350 * time.Millisecond, -350 * time.Millisecond, 5 * time.Second}, {0, 45 * time.Second, -45 * time.Second}} {
		bubbleOf(t, fmt.Sprint(offs), func(t *testing.T, r *rig) {
			for range 2 {
				r.serve(setup{}, r.works(0))
			}
			var arrived moments
			arrived.watch(r)

			const period, ticks = 3 * time.Minute, 3
			at := r.untilNext(period, time.Minute)
			for _, off := range offs {
				r.replica(off, period)
			}

			r.pass(ticks * period)
			r.wantOnce(ticksFrom(at.Add(-1), period, ticks))
			if r.count(EventTickMissed)+r.count(EventForeignID)+r.count(EventDuplicate) > 0 || r.logs.Count("level=ERROR") > 0 {
				t.Errorf("events %v\n%s", r.events.Counts(), r.logs.Lines())
			}
			for i := range ticks {
				tick := at.Add(time.Duration(i) * period)
				if early := tick.Sub(arrived.of[tickID(tick)]); !between(early, slices.Max(offs)-10*time.Millisecond, slices.Max(offs)) {
					t.Errorf("%v was enqueued %v before its time", tick, early)
				}
			}
		})
	}
}

// While asynq's Redis is away, a Scheduler tries to enqueue a tick until the next one is due, but at most for ten
// minutes. Then it logs the missed tick.
func TestPatienceOfATick(t *testing.T) {
	for _, c := range []struct {
		period, down time.Duration
		missed       int
	}{
		{half, 50 * time.Second, 1},
		{20 * time.Minute, enqueueTimeout + time.Minute, 1},
	} {
		bubbleOf(t, fmt.Sprint(c.period, c.down), func(t *testing.T, r *rig) {
			at := r.untilNext(c.period, time.Second)
			p := r.replica(0, c.period)
			r.queue.Down()
			r.pass(c.down)
			r.queue.Up()
			r.pass(c.period - c.down%c.period - 5*time.Second)
			p.Shutdown()
			r.pass(10 * time.Second)
			r.serve(setup{}, r.works(0))
			r.pass(10 * time.Second)
			r.wantOnce(ticksFrom(at.Add(time.Duration(c.missed)*c.period-1), c.period, 1+int(c.down/c.period)-c.missed))
			id := fmt.Sprintf("id=%s ", tickID(at))
			if r.count(EventTickMissed) != c.missed || r.logs.Count("level=ERROR", "queuelock: a tick was not enqueued in time") != c.missed || r.logs.Count(id) != c.missed {
				t.Errorf("events %v\n%s", r.events.Counts(), r.logs.Lines())
			}
		})
	}
}

// A process that slept over three ticks does not enqueue them late. It leaves them to other replicas, and logs a
// warning.
func TestReplicaSleeps(t *testing.T) {
	const period = 3 * time.Minute
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{}, r.works(0))
		at := r.untilNext(period, time.Minute)
		p := r.replica(0, period)
		now := time.Now()
		p.slept.Store(&now)
		r.pass(7 * time.Minute)
		p.slept.Store(nil)
		r.pass(2 * time.Minute)
		r.wantOnce(nil)
		if r.count(EventTickMissed) > 0 || r.logs.Count("level=WARN", "queuelock: ticks fell due while this process was suspended") != 1 {
			t.Errorf("events %v\n%s", r.events.Counts(), r.logs.Lines())
		}
		r.pass(period)
		r.wantOnce([]string{tickID(at.Add(3 * period))})
	})
}

// If a clock is set forward or back, no tick is enqueued twice, and the next ticks are not lost.
func TestClockOfAReplicaIsSet(t *testing.T) {
	for _, off := range []time.Duration{-time.Minute, 30 * 24 * time.Hour} {
		bubbleOf(t, fmt.Sprint(off), func(t *testing.T, r *rig) {
			r.serve(setup{}, r.works(0))
			at := r.untilNext(5*time.Minute, 4*time.Minute)
			p := r.replica(off, 5*time.Minute)
			r.pass(90 * time.Second)
			p.off.Store(0)
			r.pass(10 * time.Minute)
			r.wantOnce(ticksFrom(at.Add(-1), 5*time.Minute, 2))
		})
	}
}

// A tick is retained for an hour, or for the time that its entry sets. The other options of the entry are kept.
func TestOptionsOfATick(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.untilNext(half, time.Second)
		p := r.idleReplica()
		day := asynq.Retention(24 * time.Hour)
		for name, opts := range map[string][]asynq.Option{"plain": nil, "day": {day, asynq.Queue("other")}} {
			must0(t, p.Register(name, "@every 30s", asynq.NewTask("task", []byte(name), asynq.MaxRetry(3)), opts...))
		}
		r.pass(5 * time.Second)
		for queue, want := range map[string]time.Duration{"default": time.Hour, "other": 24 * time.Hour} {
			tasks, err := r.inspector.ListPendingTasks(queue)
			if err != nil || len(tasks) != 1 || tasks[0].Retention != want || tasks[0].MaxRetry != 3 {
				t.Errorf("%s: %+v, %v", queue, tasks, err)
			}
		}
	})
}

// The ids of ticks keep fractions of a second.
func TestTicksWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		at := r.untilNext(3*time.Second, time.Second/4)
		must0(t, r.idleReplica().Register("entry", "@every 1.5s", asynq.NewTask("task", nil)))
		r.pass(3 * time.Second)
		later := ID("tick", "billing", "entry", at.Add(1500*time.Millisecond).UTC().Format(time.RFC3339Nano)).Value().(string)
		if got := r.pending(); !slices.Equal(got, []string{tickID(at), later}) {
			t.Errorf("%v", got)
		}
	})
}

// When clocks change, ticks follow the local time of the zone, whenever a replica starts. Two replicas start at
// different times, and enqueue in queues of their own, because asynq keeps the ids of each queue apart.
func TestTicksWhereClocksChange(t *testing.T) {
	race.SkipSweep(t)
	for _, c := range []struct {
		zone, spec  string
		from, later string // when the replicas start
		lasts       time.Duration
		want        []string
	}{
		// Friday has no midnight in Cairo, and Sunday none in Beirut.
		{"Africa/Cairo", "0 6 * * fri", "2026-04-23T12:00:00Z", "2026-04-24T02:55:00Z", 10 * time.Minute, []string{"2026-04-24T03:00:00Z"}},
		{"Asia/Beirut", "5 4 * * sun", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z", 10 * time.Minute, []string{"2026-03-29T01:05:00Z"}},
		// It is already Sunday.
		{"Atlantic/Azores", "5 4 * * sat", "2026-03-28T06:00:00Z", "2026-03-29T04:00:00Z", 10 * time.Minute, nil},
		// The clocks go forward by half an hour, and back.
		{"Australia/Lord_Howe", "0 6 * * *", "2026-10-03T00:00:00Z", "2026-10-03T18:55:00Z", 10 * time.Minute, []string{"2026-10-03T19:00:00Z"}},
		{"Australia/Lord_Howe", "0 6 * * *", "2026-04-04T00:00:00Z", "2026-04-04T19:25:00Z", 10 * time.Minute, []string{"2026-04-04T19:30:00Z"}},
		// The clocks show the time twice.
		{"America/Havana", "30 0 * * *", "2026-10-31T12:00:00Z", "2026-11-01T04:25:00Z", 70 * time.Minute, []string{"2026-11-01T04:30:00Z", "2026-11-01T05:30:00Z"}},
		// The clocks skip the time.
		{"Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T00:25:00Z", 10 * time.Minute, nil},
	} {
		bubbleOf(t, c.zone+" "+c.spec+" "+c.from, func(t *testing.T, r *rig) {
			at := func(instant string) time.Time { return must(time.Parse(time.RFC3339, instant)) }
			start := func(queue, now string) *replica {
				p := r.replicaIn(must(time.LoadLocation(c.zone)))
				p.off.Store(int64(time.Until(at(now))))
				must0(t, p.Register("entry", c.spec, asynq.NewTask("task", nil), asynq.Queue(queue)))
				r.pass(time.Second)
				return p
			}
			// The clock of the early replica then skips the time until the later start.
			start("early", c.from).off.Store(int64(time.Until(at(c.later))))
			start("late", c.later)
			r.pass(c.lasts)
			var want []string
			for _, tick := range c.want {
				want = append(want, tickID(at(tick)))
			}
			for _, queue := range []string{"early", "late"} {
				if got := r.pendingIn(queue); !slices.Equal(got, want) {
					t.Errorf("the replica that starts %s: %v, want %v", queue, got, want)
				}
			}
		})
	}
}
