package cronlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

const minutely = "0 * * * * *"

// untilMinute sleeps until so long after the next full minute, or before it.
func untilMinute(after time.Duration) time.Time {
	minute := time.Now().Truncate(time.Minute).Add(time.Minute)
	time.Sleep(time.Until(minute.Add(after)))
	return minute
}

// A tick for which nobody led is run by the next leader, once, and not past the misfire grace.
func TestTickWithoutLeader(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy []Option
		runs   int
	}{
		{"at most once", nil, 1},
		{"at least once", []Option{AtLeastOnce(3)}, 1},
		{"past the grace", []Option{AtLeastOnce(3), WithMisfireGrace(3 * time.Second)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { tickWithoutLeader(t, w, tt.policy, tt.runs) })
		})
	}
}

func tickWithoutLeader(t *testing.T, w *world, policy []Option, want int) {
	first, all := w.members(3, minutely, nil, policy...)
	tick := untilMinute(-time.Second)
	first.cable.Cut() // it leads until after the tick, but cannot run it
	time.Sleep(time.Second)
	if len(atHead(all[1:])) > 0 {
		t.Fatal("the tick has a leader")
	}
	time.Sleep(55 * time.Second) // not until the next tick
	if len(atHead(all)) != 1 || first.leads() {
		t.Fatal("no other leader")
	}
	runs := w.ran()
	if len(runs) != want {
		t.Fatalf("%d runs, want %d: %+v", len(runs), want, runs)
	}
	for _, r := range runs {
		if !r.Tick.Equal(tick) || r.Attempt != 1 || r.replica != atHead(all)[0].id() {
			t.Errorf("run of %v, attempt %d, on %s", r.Tick, r.Attempt, r.replica)
		}
		if late := r.at.Sub(tick); late > ttl+taking {
			t.Errorf("it ran %v after the tick", late)
		}
	}
	for _, m := range all[1:] {
		if n := m.the("job").follows(); n > 0 {
			t.Errorf("%s still follows %d ticks", m.id(), n)
		}
	}
	first.cable.Mend()
	untilMinute(5 * time.Second)
	if n := w.perTick()[tick.UTC()]; n != want {
		t.Errorf("later the tick had %d runs", n)
	}
	if n := w.perTick()[tick.Add(time.Minute).UTC()]; n != 1 {
		t.Errorf("the next tick had %d runs", n)
	}
}

// What a leader had started when it was cut off is lost, or started once more, as the policy says. The run
// learns of it before that, and why.
func TestLeaderCutOffInMidRun(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy JobOption
		runs   int
	}{
		{"at most once", AtMostOnce(), 1},
		{"at least once", AtLeastOnce(2), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { cutOffInMidRun(t, w, tt.policy, tt.runs) })
		})
	}
}

func cutOffInMidRun(t *testing.T, w *world, policy JobOption, want int) {
	ended := make(chan error, 10)
	leader, all := w.members(3, minutely, func(m *member, ctx context.Context) error {
		if m.id() != "0" {
			return nil
		}
		<-ctx.Done()
		if len(w.ran()) > 1 {
			t.Error("the second run began before the first was told to stop")
		}
		ended <- context.Cause(ctx)
		return ctx.Err()
	}, policy)
	tick := untilMinute(time.Second)
	leader.cable.Cut()
	if cause := <-ended; !errors.Is(cause, core.ErrLost) {
		t.Errorf("the run ended for %v", cause)
	}
	time.Sleep(time.Until(tick.Add(50 * time.Second)))
	leader.cable.Mend()
	first, last := w.attempts(tick, want)
	if want > 1 && (last.replica != atHead(all)[0].id() || last.FencingToken <= first.FencingToken) {
		t.Errorf("the last run is on %s with token %d after %d", last.replica, last.FencingToken, first.FencingToken)
	}
}

// attempts checks that there were n runs, and that the last was attempt n at the tick.
func (w *world) attempts(tick time.Time, n int) (first, last ran) {
	w.t.Helper()
	runs := w.ran()
	if len(runs) != n {
		w.t.Fatalf("%d runs, want %d: %+v", len(runs), n, runs)
	}
	first, last = runs[0], runs[n-1]
	if last.Attempt != n || !last.Tick.Equal(tick) {
		w.t.Errorf("the last run is attempt %d of %v", last.Attempt, last.Tick)
	}
	return first, last
}

// A run that a resignation cut short has not completed, as one that a shutdown cut short: at least once means
// that the next leader runs the tick again.
func TestResignationInMidRun(t *testing.T) {
	orStopped := func(returns func(ctx context.Context) error) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				return returns(ctx)
			}
		}
	}
	for _, tt := range []struct {
		name   string
		policy JobOption
		work   func(ctx context.Context) error
		runs   int
	}{
		{"at least once, cut short", AtLeastOnce(2), orStopped(context.Cause), 2},
		{"at least once, done", AtLeastOnce(2), orStopped(func(context.Context) error { return nil }), 1},
		{"at least once, failed before", AtLeastOnce(2), func(context.Context) error { return errors.New("failure") }, 1},
		{"at most once, cut short", AtMostOnce(), orStopped(context.Cause), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { resignInMidRun(t, w, tt.policy, tt.work, tt.runs) })
		})
	}
}

func resignInMidRun(t *testing.T, w *world, policy JobOption, work func(ctx context.Context) error, want int) {
	leader, all := w.members(2, minutely, func(_ *member, ctx context.Context) error { return work(ctx) }, policy)
	tick := untilMinute(2 * time.Second)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	leader.Resign(now) // cannot wait for the run
	time.Sleep(time.Until(tick.Add(50 * time.Second)))
	_, last := w.attempts(tick, want)
	if want > 1 && (last.replica == leader.id() || !all[1].leads()) {
		t.Errorf("the last run is on %s", last.replica)
	}
}

// A replica on its own that has resigned catches up when it leads again.
func TestTickWithoutLeaderAlone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		only, _ := w.members(1, minutely, nil)
		tick := untilMinute(-time.Second)
		if err := only.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if runs := w.ran(); len(runs) != 1 || !runs[0].Tick.Equal(tick) || runs[0].at.Sub(tick) < time.Second {
			t.Errorf("runs %+v", runs)
		}
	})
}

// A catch-up that waits for an earlier run of the job to end does not keep its replica from resigning, and is
// left to the next leader.
func TestResignWhileCatchingUp(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		only, _ := w.members(1, minutely, nil)
		earlier, err := w.locks().Acquire(t.Context(), core.Key("cron", "service", "job", "run"))
		if err != nil {
			t.Fatal(err)
		}
		tick := untilMinute(-time.Second)
		if err := only.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		await(t, afterResign+taking, "it leads again", only.leads)
		time.Sleep(2 * time.Second) // the catch-up waits
		start := time.Now()
		if err := only.Resign(t.Context()); err != nil || time.Since(start) > taking {
			t.Errorf("Resign took %v: %v", time.Since(start), err)
		}
		if runs := w.ran(); len(runs) > 0 {
			t.Fatalf("runs %+v", runs)
		}
		if err := earlier.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(tick.Add(30 * time.Second)))
		if runs := w.ran(); len(runs) != 1 || !runs[0].Tick.Equal(tick) {
			t.Errorf("runs %+v", runs)
		}
	})
}

// What falls due while a leader catches up follows, and is not skipped as if the job were too slow.
func TestCatchUpSkipsNothing(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		only, _ := w.members(1, secondly, func(*member, context.Context) error { time.Sleep(200 * time.Millisecond); return nil })
		first := time.Now().Truncate(time.Second).Add(time.Second)
		time.Sleep(time.Until(first.Add(2*time.Second + 500*time.Millisecond)))
		if err := only.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Second)
		for tick := first; tick.Before(first.Add(9 * time.Second)); tick = tick.Add(time.Second) {
			if n := w.perTick()[tick.UTC()]; n != 1 {
				t.Errorf("tick %v ran %d times", tick, n)
			}
		}
	})
}
