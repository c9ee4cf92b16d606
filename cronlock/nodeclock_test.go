package cronlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// If the clocks of one node or of all nodes step by a minute and back, no tick starts more often than allowed, even
// without a clock window.
func TestNodesStepWithoutAWindow(t *testing.T) {
	race.SkipSweep(t)
	for _, most := range []int{1, 3} {
		bubbleOf(t, fmt.Sprint(most), 30*time.Second, func(t *testing.T, w *world) {
			w.replicas(3, plan{schedule: Every(5 * time.Second), core: []core.Option{core.WithClockWindow(0)}, job: []JobOption{AtLeastOnce(most)}, work: hold(3 * time.Second)})

			rng := rand.New(rand.NewPCG(uint64(most), 1))
			for range 6 {
				d, one := time.Minute-2*time.Minute*time.Duration(rng.IntN(2)), rng.IntN(2*len(w.nodes))
				for _, step := range []time.Duration{d, -d} {
					for i, n := range w.nodes {
						if i == one || one >= len(w.nodes) {
							n.StepClock(step)
						}
					}
					time.Sleep(time.Duration(rng.IntN(30000)) * time.Millisecond)
				}
			}

			time.Sleep(2 * time.Minute)

			starts, runs := map[time.Time]int{}, w.ran()
			for _, r := range runs {
				if starts[r.Tick]++; starts[r.Tick] > most {
					t.Errorf("tick %v started %d times", r.Tick, starts[r.Tick])
				}
			}

			if last := runs[len(runs)-1]; len(runs) < 20 || time.Since(last.start) > 10*time.Second {
				t.Errorf("%d runs, the last at %v", len(runs), last.start)
			}
		})
	}
}

// A replica whose clock is outside of the window starts nothing, and logs the reason once.
func TestClockBeyondTheWindow(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		var log logbook.Book
		w.each(func(n *testutil.Node) { n.StepClock(3 * time.Second) })
		r := w.replica("a", plan{core: []core.Option{core.WithLogger(log.Logger())}})
		till(5*time.Minute + 30*time.Second)
		w.want()

		err := r.RunDue(t.Context())
		if e := new(Error); !errors.As(err, &e) || !errors.Is(err, core.ErrUnavailable) || IsExpected(err) {
			t.Errorf("RunDue: %v", err)
		}
		wantWords(t, "RunDue", err, "check NTP")
		log.Want(t, 1, "a tick cannot start", "check NTP")

		w.each(func(n *testutil.Node) { n.StepClock(-3 * time.Second) })
		till(8*time.Minute + 30*time.Second)
		if runs := w.ran(); len(runs) < 3 {
			t.Errorf("%d runs after the clocks were set right", len(runs))
		}
	})
}

// A timer does not notice that a clock was set, or that its machine was suspended. A poll notices it within a minute.
func TestClocksAreSetAhead(t *testing.T) {
	bubble(t, 5*time.Minute, func(t *testing.T, w *world) {
		w.replica("a", plan{schedule: Every(time.Hour), core: []core.Option{core.WithClockWindow(0)}, job: []JobOption{WithGrace(2 * time.Minute)}})
		till(6 * time.Minute)
		w.each(func(n *testutil.Node) { n.StepClock(50 * time.Minute) })
		till(12 * time.Minute)
		if runs := w.ran(); len(runs) != 1 || runs[0].Tick != at(time.Hour) || runs[0].start.Before(at(10*time.Minute)) {
			t.Errorf("ran %+v", runs)
		}
	})
}

// A replica that sent its last requests while the nodes' clocks were wrong for a moment does not rely on these clocks
// for long.
func TestClockThatWasWrongForAMoment(t *testing.T) {
	bubble(t, 5*time.Minute, func(t *testing.T, w *world) {
		r := w.replica("a", plan{schedule: Every(time.Hour), core: []core.Option{core.WithRestartGuard(false)}})
		till(59*time.Minute + 50*time.Second)
		w.each(func(n *testutil.Node) { n.StepClock(-50 * time.Minute) })
		_ = r.RunDue(t.Context())
		_ = r.RunNow(t.Context())
		till(59*time.Minute + 55*time.Second)
		w.each(func(n *testutil.Node) { n.StepClock(50 * time.Minute) })
		till(63 * time.Minute)
		if runs := w.ran(); len(runs) == 0 || runs[len(runs)-1].Tick != at(time.Hour) || runs[len(runs)-1].start.After(at(61*time.Minute+5*time.Second)) {
			t.Errorf("ran %+v", runs)
		}
	})
}

// The first tick of a schedule falls due by the nodes' clocks, even if no request was sent to them before.
func TestFirstTickByTheNodesClocks(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		w.each(func(n *testutil.Node) { n.StepClock(time.Minute) })
		once := scheduleFunc(func(after time.Time) time.Time {
			if first := at(10 * time.Minute); after.Before(first) {
				return first
			}
			return time.Time{}
		})
		w.replica("a", plan{schedule: once, core: []core.Option{core.WithClockWindow(0), core.WithRestartGuard(false)}, job: []JobOption{WithGrace(30 * time.Second)}})
		till(20 * time.Minute)
		if runs := w.ran(); len(runs) != 1 || runs[0].start.After(at(9*time.Minute+2*time.Second)) {
			t.Errorf("ran %+v", runs)
		}
	})
}
