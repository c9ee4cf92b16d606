package tick

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A schedule that has had its last tick has a status all the same.
func TestStatusOfTheLastTick(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		at := untilMinute(0)
		r := w.alone(only(at), nil)
		if err := r.RunDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := r.Status(t.Context(), 5)
		if err != nil || len(s.Ticks) != 1 || s.Ticks[0].Outcome != Ran || !s.Next.IsZero() {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// A tick that was started at most once, and whose replica died, is not called missed.
func TestStatusOfTheDead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r, other := w.alone(every(time.Minute), nil), w.alone(every(time.Minute), nil)
		at := untilMinute(0)
		c, err := r.Claim(t.Context(), Tick{At: at, Exact: true})
		if err != nil {
			t.Fatal(err)
		}
		r.fn = func(ctx context.Context) error { r.locks.Link.Kill(); <-ctx.Done(); return nil }
		_ = c.Call()
		_ = c.End()
		time.Sleep(40 * time.Second)
		s, err := other.Status(t.Context(), 1)
		if err != nil || len(s.Ticks) != 1 || s.Ticks[0].Outcome != Abandoned || s.Ticks[0].By != r.service.self {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// A replica whose clock is ahead, and which was not the leader when its host called, runs the tick if it leads when that is
// due.
func TestElectedBetweenCallAndTick(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.replica("a", plan{period: time.Minute, elected: true})
		awaitLeader(t, a)
		b := w.replica("b", plan{period: time.Minute, elected: true, ahead: 20 * time.Second})
		at := untilMinute(42 * time.Second).Add(time.Minute) // b's host has called
		w.forget()
		a.end()
		awaitLeader(t, b)
		time.Sleep(time.Until(at.Add(time.Second)))
		w.want(at)
	})
}

// A leader whose clock is ahead runs the ticks, too, that its host has never called for, because they were past by its own
// clock when it started.
func TestFirstTicksOfAnEarlyLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		at := untilMinute(0)
		w.replica("early", plan{period: time.Second, ahead: 5 * time.Second, elected: true})
		time.Sleep(10*time.Second + 500*time.Millisecond)
		w.want(ticks(at.Add(time.Second), time.Second, 10)...)
	})
}

// A replica whose clock is off by far, and which does not lead, keeps nothing of the ticks that it refuses.
func TestRefusalsOfAClockThatIsOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.replica("a", plan{period: time.Second, elected: true})
		awaitLeader(t, a)
		off := w.replica("off", plan{period: time.Second, elected: true, ahead: time.Hour})
		time.Sleep(time.Minute)
		if n := off.service.gate.Inside(); n > 10 {
			t.Errorf("%d goroutines", n)
		}
	})
}

// Nothing starts once Close was called: neither what waits for its tick, nor a retry.
func TestNothingStartsAfterClose(t *testing.T) {
	for name, p := range map[string]plan{
		"early": {period: time.Minute, ahead: 20 * time.Second},
		"retry": {period: time.Minute, job: []JobOption{WithRetry(4, time.Minute)}, work: func(context.Context) error { return errors.New("no") }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				r := w.replica("a", p)
				untilMinute(45 * time.Second)
				if name == "retry" {
					untilMinute(time.Second)
				}
				w.forget()
				began := time.Now()
				if err := r.service.Close(t.Context()); err != nil || time.Since(began) > time.Second {
					t.Errorf("Close: %v after %v", err, time.Since(began))
				}
				time.Sleep(5 * time.Minute)
				w.want()
			})
		})
	}
}

// An observer may look at the job that it hears of.
func TestObserverLooksAtTheJob(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var j *Job
		looked := make(chan Local, 8)
		l := locktest.NewOn(t, w.nodes, core.WithObserver(core.Observer{Event: func(_ context.Context, e core.Event) {
			if e.Kind == EventReplaced {
				looked <- j.Local()
			}
		}}))
		s, err := New(l.Locker, "service")
		if err != nil {
			t.Fatal(err)
		}
		j, err = s.Add("job", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, WithOverlap(Replace))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = j.Run(ctx, Tick{At: time.Now(), Exact: true, Period: time.Second}) }()
		time.Sleep(time.Second)
		go func() { _ = j.Run(ctx, Tick{}) }()
		if local := <-looked; local.Running == 0 {
			t.Errorf("%+v", local)
		}
		stop()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What was removed is not caught up.
func TestRemovedIsNotCaughtUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		untilMinute(2 * time.Second)
		r := w.replica("a", plan{period: 10 * time.Second, idle: true, job: []JobOption{WithCatchUp(10)},
			work: func(ctx context.Context) error { pause.For(ctx, time.Second); return nil }})
		time.Sleep(500 * time.Millisecond)
		r.Job.Remove()
		before := len(w.ran())
		time.Sleep(20 * time.Second)
		if n := len(w.ran()); before == 0 || n != before {
			t.Errorf("%d runs before Remove, %d after", before, n)
		}
	})
}

// A run by hand in an outage does not have those before it caught up again that ran without protection.
func TestUnprotectedStaysDone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.replica("a", plan{period: 10 * time.Second, elected: true, job: []JobOption{WithRunAnyway(true)}})
		awaitLeader(t, r)
		untilMinute(time.Second)
		w.forget()
		for _, n := range w.nodes {
			n.Down()
		}
		time.Sleep(42 * time.Second)
		_ = r.Run(t.Context(), Tick{})
		for _, n := range w.nodes {
			n.Up()
		}
		time.Sleep(6 * time.Second)
		per := map[time.Time]int{}
		for _, run := range w.ran() {
			if per[run.Tick]++; per[run.Tick] > 1 && !run.Tick.IsZero() {
				t.Errorf("%v ran again", run.Tick)
			}
		}
	})
}

// Of an outage no more is caught up than the policy says, in its order.
func TestOutageCatchesUpTheLatest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.replica("a", plan{period: 2 * time.Second, job: []JobOption{WithCatchUp(2)}})
		untilMinute(time.Second)
		for _, n := range w.nodes {
			n.Down()
		}
		w.forget()
		at := untilMinute(-41 * time.Second) // at :19
		for _, n := range w.nodes {
			n.Up()
		}
		time.Sleep(20 * time.Second)
		late := 0
		for i, run := range w.ran() {
			if run.Tick.Before(at.Add(-41 * time.Second)) {
				late++
			}
			if i > 0 && run.Tick.Before(w.ran()[i-1].Tick) {
				t.Errorf("%v ran after %v", run.Tick, w.ran()[i-1].Tick)
			}
		}
		if late > 2 {
			t.Errorf("%d ticks of the outage ran", late)
		}
	})
}

// What could not work as it reads is refused.
func TestRefusedSchedules(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s, err := New(w.first.Locker, "service")
		if err != nil {
			t.Fatal(err)
		}
		nothing := func(context.Context) error { return nil }
		for name, tt := range map[string]struct {
			opts []JobOption
			say  string
		}{
			"no schedule":  {[]JobOption{WithCatchUp(1)}, "need a schedule"},
			"minimum gap":  {[]JobOption{WithCatchUp(1), WithSchedule(every(time.Minute)), WithMinGap(time.Second)}, "minimum gap"},
			"by the start": {[]JobOption{WithSchedule(cron.Every(4 * time.Second))}, "WithMinGap instead"},
			"same instant": {[]JobOption{WithSchedule(notBefore(time.Minute))}, "after the instant"},
			"too often":    {[]JobOption{WithSchedule(every(time.Nanosecond))}, "at least 1ms"},
		} {
			if _, err := s.Add(name, nothing, tt.opts...); err == nil || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// notBefore is a schedule that takes the instant it is asked about for the next tick: who counts its ticks never ends.
type notBefore time.Duration

func (n notBefore) Next(after time.Time) time.Time {
	return every(n).Next(after.Add(-1))
}

// Hundreds of jobs can be paused; when there is no room for more, Pause says so, and Resume still works.
func TestManyPauses(t *testing.T) {
	s := state{}
	now := time.Now()
	n := 0
	for ; s.fit(); n++ {
		s.Paused = append(s.Paused, pausing{Job: fmt.Sprintf("a job of a longer name %d", n), By: "some-host-of-a-cluster/12345/ABCDEF", At: now})
	}
	if n < 300 {
		t.Errorf("only %d jobs can be paused", n)
	}
	p := s.Paused[0]
	p.Until = now
	s.Paused, s.Resumed = s.Paused[2:], []pausing{p}
	if !s.fit() {
		t.Error("there is no room for Resume")
	}
}
