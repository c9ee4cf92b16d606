package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// If too few nodes answer for some seconds when a run ends, the end is recorded as soon as enough nodes answer again.
// The completed tick is not started again.
func TestEndInAShortOutage(t *testing.T) {
	for _, away := range []time.Duration{1500 * time.Millisecond, 2500 * time.Millisecond, 3 * time.Second, 5 * time.Second} {
		bubbleOf(t, away.String(), 30*time.Second, func(t *testing.T, w *world) {
			work := func(ctx context.Context) error {
				defer func() {
					w.nodes[0].Down()
					w.nodes[1].Hang()
					time.AfterFunc(away, func() { w.each((*testutil.Node).Up) })
				}()
				return hold(4 * time.Second)(ctx)
			}
			w.replicas(2, plan{job: []JobOption{AtLeastOnce(3)}, work: work})
			till(4*time.Minute + 30*time.Second)
			w.want(ticks(at(0), time.Minute, 5)...)
			if n := w.events.Count("cronlock run_unrecorded"); n != 0 {
				t.Errorf("%d ends were not recorded", n)
			}
		})
	}
}

// A replica does not start again a tick that it has completed itself, even if the nodes have no record of the end.
func TestFinishedHereIsNeverStartedAgain(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{schedule: At(at(time.Minute)), job: []JobOption{AtLeastOnce(3)}, work: func(context.Context) error {
			w.each((*testutil.Node).Down)
			return nil
		}})
		till(2 * time.Minute)
		w.each((*testutil.Node).Up)
		till(3 * time.Minute)
		if err := r.RunDue(t.Context()); !errors.Is(err, core.ErrDone) {
			t.Errorf("RunDue: %v", err)
		}
		w.want(at(time.Minute))
	})
}

// A replica sends no requests about ticks that it knows: if the latest tick is over, a call sends no request at all.
func TestWhatIsKnownIsNotAskedFor(t *testing.T) {
	for _, late := range []bool{false, true} { // the tick was missed
		bubbleOf(t, fmt.Sprintf("missed=%v", late), 30*time.Minute, func(t *testing.T, w *world) {
			if late {
				w.each((*testutil.Node).Down)
				till(62 * time.Minute)
			}

			r := w.replica("a", plan{schedule: Every(time.Hour), core: []core.Option{core.WithRestartGuard(false)}})
			w.each((*testutil.Node).Up)
			till(65 * time.Minute)

			asked := 0
			r.locks.Link.OnRequest(func(redis.Cmder) testutil.Action { asked++; return testutil.Action{} })
			for range 100 {
				if err := r.RunDue(t.Context()); !errors.Is(err, core.ErrDone) && !errors.Is(err, ErrNotDue) && !errors.Is(err, ErrMissed) {
					t.Fatal(err)
				}
			}

			if asked > 0 {
				t.Errorf("%d requests", asked)
			}
			r.locks.Link.OnRequest(nil)
		})
	}
}

// A replica remembers at most maxLookback ticks of a job.
func TestMemoryIsBounded(t *testing.T) {
	var m memory
	for i := range 10 * maxLookback {
		m.add(entry{tick: at(time.Duration(i) * time.Second), state: tickOver, end: &record{}})
	}
	if _, known := m.lookup(at((10*maxLookback - 1) * time.Second)); len(m.entries) != maxLookback || !known {
		t.Errorf("%d ticks are known, the latest: %v", len(m.entries), known)
	}
}

// A tick whose end is on record is over even if all nodes have lost its start during the run.
func TestNodesAreEmptiedInTurnDuringARun(t *testing.T) {
	race.SkipSweep(t)
	for _, most := range []int{1, 2} {
		bubbleOf(t, fmt.Sprint(most), 59*time.Minute, func(t *testing.T, w *world) {
			p := plan{schedule: Every(time.Hour), work: hold(6 * time.Minute), job: []JobOption{WithGrace(15 * time.Minute), AtLeastOnce(most)}}
			w.replica("a", p)

			till(61 * time.Minute)
			for _, n := range w.nodes {
				n.RestartEmpty()
				time.Sleep(time.Minute)
			}

			newcomer := w.replica("b", p)
			till(90 * time.Minute)
			w.want(at(time.Hour))

			past, err := newcomer.History(t.Context(), 1)
			if err != nil || past[0].Ended.IsZero() || past[0].Attempt != 1 || past[0].Superseded {
				t.Errorf("history: %+v, %v", past, err)
			}
		})
	}
}

// A start that was not confirmed belongs to its replica: if the nodes have the record, that replica runs the tick,
// once, and no other replica starts it.
func TestStartWithoutAnAnswer(t *testing.T) {
	for _, most := range []int{1, 2} {
		bubbleOf(t, fmt.Sprint(most), time.Minute+30*time.Second, func(t *testing.T, w *world) {
			// The observer is called on goroutines of the replica.
			var started atomic.Pointer[replica]
			var lost atomic.Bool

			p := plan{job: []JobOption{AtLeastOnce(most)}}
			p.core = []core.Option{core.WithObserver(core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
				r := started.Load()
				isStart := r != nil && op.Kind == core.OpComplete && op.Key == r.startKey(at(2*time.Minute), 1)
				if isStart && lost.CompareAndSwap(false, true) {
					r.locks.Link.Lose(1000)
					time.AfterFunc(12*time.Second, func() { r.locks.Link.Lose(0) })
				}
				return ctx, nil
			}})}

			started.Store(w.replica("a", p))
			till(2*time.Minute + 5*time.Second)
			w.replica("b", plan{job: p.job})
			till(2*time.Minute + 50*time.Second)

			starts := 0
			for _, run := range w.ran() {
				if run.Tick.Equal(at(2 * time.Minute)) {
					starts++
				}
			}

			if !lost.Load() || starts != 1 {
				t.Errorf("%d starts: %+v", starts, w.ran())
			}
		})
	}
}

// A tick that seemed missed while the nodes' clocks were ahead for a moment starts when the clocks are right again.
func TestMissedByAWrongClock(t *testing.T) {
	race.SkipSweep(t)
	for _, ahead := range []time.Duration{5 * time.Minute, 30 * time.Minute} {
		bubbleOf(t, ahead.String(), 5*time.Minute, func(t *testing.T, w *world) {
			w.replica("a", plan{schedule: Every(time.Hour), core: []core.Option{core.WithClockWindow(0)}})
			till(57 * time.Minute)
			w.each(func(n *testutil.Node) { n.StepClock(ahead) })
			till(59*time.Minute + 40*time.Second)
			w.each(func(n *testutil.Node) { n.StepClock(-ahead) })
			till(70 * time.Minute)
			if runs := w.ran(); len(runs) == 0 || !runs[len(runs)-1].Tick.Equal(at(time.Hour)) {
				t.Errorf("ran %+v", runs)
			}
		})
	}
}

// If a run has failed, its end is not on record, and another replica has done the tick meanwhile, the first replica
// does not rely on its own failure: Previous is that tick.
func TestPreviousBesideAnEndThatIsNotRecorded(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		var a *replica
		a = w.replica("a", plan{job: []JobOption{AtLeastOnce(3)}, work: func(ctx context.Context) error {
			run, _ := FromContext(ctx)
			if !run.Tick.Equal(at(2 * time.Minute)) {
				return nil
			}
			a.locks.Link.Cut()
			time.AfterFunc(30*time.Second, a.locks.Link.Restore)
			return errors.New("no paper")
		}})

		till(2*time.Minute + 5*time.Second)
		b := w.replica("b", plan{job: []JobOption{AtLeastOnce(3)}})
		till(2*time.Minute + 50*time.Second)
		b.end()
		till(3*time.Minute + 30*time.Second)

		runs := w.ran()
		if n := len(runs); n != 5 || runs[3].Attempt != 2 || !runs[4].Previous.Equal(at(2*time.Minute)) {
			t.Errorf("ran %+v", runs)
		}
	})
}

// A tick counts as superseded only if a later tick is due by the present clocks. So a replica that saw later ticks
// while the nodes' clocks were ahead for a moment still starts an orphaned tick again.
func TestSupersededByAWrongClock(t *testing.T) {
	bubble(t, 3*time.Minute+30*time.Second, func(t *testing.T, w *world) {
		right := core.WithClockWindow(0) // accepts any clock
		w.each(func(n *testutil.Node) { n.StepClock(5 * time.Minute) })
		b := w.replica("b", plan{job: append([]JobOption{AtLeastOnce(3)}, uncalled...), core: []core.Option{right}})
		c, err := b.newClaim(t.Context(), false)
		if err != nil || !c.tick.Equal(at(8*time.Minute)) {
			t.Fatalf("tick %v, %v", c.tick, err)
		}
		if err := c.End(); err != nil {
			t.Fatal(err)
		}
		w.each(func(n *testutil.Node) { n.StepClock(-5 * time.Minute) })

		a := w.replica("a", plan{job: []JobOption{AtLeastOnce(3)}, core: []core.Option{right}, work: hold(time.Hour)})
		till(4*time.Minute + 30*time.Second)
		a.locks.Link.Kill()
		a.stop()
		till(9*time.Minute + 30*time.Second)
		if err := b.RunDue(t.Context()); err != nil {
			t.Error(err)
		}
		if runs := w.ran(); len(runs) != 2 || !runs[0].Tick.Equal(runs[1].Tick) || runs[1].Attempt != 2 {
			t.Errorf("ran %+v", runs)
		}
	})
}

// If a start was recorded, but its run could not begin because the host ended the context of the call, the replica
// still runs the tick, once.
func TestStoppedBetweenTheRecordAndTheRun(t *testing.T) {
	bubble(t, time.Minute+30*time.Second, func(t *testing.T, w *world) {
		var made atomic.Pointer[replica] // set when the replica has been made
		ctx, cancel := context.WithCancel(t.Context())

		p := plan{schedule: Every(time.Minute), job: []JobOption{WithHost(func() {
			if r := made.Load(); r != nil {
				_ = r.RunDue(t.Context())
			}
		})}}
		p.core = []core.Option{core.WithObserver(core.Observer{Start: func(c context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			r := made.Load()
			if op.Kind == core.OpComplete && r != nil && op.Key == r.startKey(at(2*time.Minute), 1) {
				return c, func(core.Outcome) { cancel() }
			}
			return c, nil
		}})}

		r := w.replica("a", p)
		made.Store(r)

		till(2 * time.Minute)
		err := r.RunDue(ctx)
		till(2*time.Minute + 30*time.Second)

		n := 0
		for _, run := range w.ran() {
			if run.Tick.Equal(at(2 * time.Minute)) {
				n++
			}
		}

		if n != 1 {
			t.Errorf("%v: %d runs: %+v", err, n, w.ran())
		}
	})
}
