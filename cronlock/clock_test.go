package cronlock

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"

	"github.com/lockkit/lockkit/core"
)

// A stepped clock is ahead by what the test says.
type stepped struct {
	clockwork.Clock
	ahead atomic.Int64
}

func (s *stepped) Now() time.Time { return s.Clock.Now().Add(time.Duration(s.ahead.Load())) }

// A clock that is put right after gocron has set its timers, as that of a machine that boots, brings calls too early or too
// late. No tick runs twice, none early, and none is lost.
func TestClockSetBack(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		for _, ahead := range []time.Duration{10 * time.Second, 20 * time.Minute, -10 * time.Second} {
			t.Run(fmt.Sprint(replicas, " ", ahead), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, w *world) { putRight(t, w, replicas, ahead) })
			})
		}
	}
}

// putRight starts replicas, of which one has a clock that is put right a minute later.
func putRight(t *testing.T, w *world, replicas int, ahead time.Duration) {
	time.Sleep(time.Minute)
	clock := &stepped{Clock: defaults().clock}
	clock.ahead.Store(int64(ahead))
	for i := range replicas {
		of := []clockwork.Clock{clock, defaults().clock}[i]
		locks := w.locks(core.WithRestartGuard(false)) // which looks at each node every five seconds, for hours
		r := w.replicaOn(fmt.Sprint(i), locks, WithClock(of))
		r.job(gocron.CronJob("@hourly", false), nil)
		r.sched.Start()
	}
	time.Sleep(time.Minute)
	clock.ahead.Store(0)
	time.Sleep(3*time.Hour + 10*time.Minute)
	f := fleet{w: w}
	f.atMostOnce()
	for _, r := range w.ran() {
		if r.at.Before(r.Tick) {
			t.Errorf("tick %v ran at %v", r.Tick, r.at)
		}
	}
	if n := len(w.ran()); n != 3 {
		t.Errorf("%d runs of 3 ticks: %v; errors: %v", n, w.ran(), w.failed())
	}
}

// gocron's own RunNow counts as the tick that it falls on: refused, and the error says so.
func TestRunNowOfGocron(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		f := w.fleet(gocron.CronJob("* * * * *", false), plan{n: 2})
		time.Sleep(30 * time.Second)
		now := func() {
			t.Helper()
			if err := f.jobs[0].Handle().RunNow(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		now() // before the first tick
		if errs := w.failed(); len(errs) != 1 || !errors.Is(errs[0], ErrNotDue) || len(w.ran()) > 0 {
			t.Errorf("before the first tick: %v, runs %v", errs, w.ran())
		}
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.errs = nil
		w.mu.Unlock()
		for range 3 {
			now()
		}
		w.refused(3, core.ErrDone, true)
		time.Sleep(5 * time.Minute)
		f.once(len(f.due()))
	})
}

// A slow answer of Lock, which makes calls queue, brings no tick twice and no run by hand.
func TestSlowNodes(t *testing.T) {
	for _, oneWay := range []time.Duration{65 * time.Millisecond, 215 * time.Millisecond} {
		for name, sched := range map[string][]gocron.SchedulerOption{
			"singleton": nil,
			"limit":     {gocron.WithLimitConcurrentJobs(1, gocron.LimitModeWait)},
		} {
			t.Run(fmt.Sprint(name, " ", 2*oneWay), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, w *world) {
					w.sched = sched
					p := plan{n: 3}
					if sched == nil {
						p.jobOpts = []JobOption{WithGocron(gocron.WithSingletonMode(gocron.LimitModeWait))}
					}
					f := w.fleet(gocron.CronJob(secondly, true), p)
					for _, n := range w.nodes {
						n.Slow(oneWay)
						n.SlowReplies(oneWay)
					}
					time.Sleep(93 * time.Second)
					f.atMostOnce()
					if n := len(w.ran()); n < 40 {
						t.Errorf("%d runs", n)
					}
				})
			})
		}
	}
}

// Nodes that refuse a replica for its clock are no outage: it does not run anyway.
func TestRunAnywayNotForTheClock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.fleet(gocron.CronJob("* * * * *", false), plan{n: 2, opts: []Option{WithRunAnyway(true)}})
		time.Sleep(30 * time.Second)
		for _, n := range w.nodes[:2] {
			n.StepClock(-20 * time.Second)
		}
		time.Sleep(time.Minute)
		if runs := w.ran(); len(runs) > 0 {
			t.Errorf("ran %v", runs)
		}
		w.refused(2, ErrClock, true)
	})
}

// In an outage nobody leads; where runs are to go on all the same, they do, on every replica.
func TestRunAnywayWithoutLeader(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.members(3, minutely, nil, WithRunAnyway(true))
		untilMinute(-30 * time.Second)
		for _, n := range w.nodes[:2] {
			n.Down()
		}
		time.Sleep(time.Minute)
		if runs := w.ran(); len(runs) != 3 || runs[0].FencingToken > 0 {
			t.Errorf("ran %v; errors %v", runs, w.failed())
		}
		for _, n := range w.nodes {
			n.Up()
		}
		time.Sleep(5*time.Minute + 10*time.Second) // who asks whether there is an outage is in nobody's way
		if n := len(w.ran()); n != 3+5 {
			t.Errorf("%d runs once the nodes are back; errors: %v", n, w.failed())
		}
	})
}
