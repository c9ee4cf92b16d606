package cronlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A claim in which an observer panics leaves nothing behind: neither its turn among those of the jobs, nor the lease, nor
// what Close waits for.
func TestObserverPanicsInAClaim(t *testing.T) {
	for name, kind := range map[string]core.OpKind{"acquire": core.OpAcquire, "hold": core.OpHold, "release": core.OpRelease} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
				var left atomic.Int32
				left.Store(atOnce + 1)
				observer := core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
					if op.Kind == kind && left.Add(-1) >= 0 {
						panic("observer")
					}
					return ctx, nil
				}}
				r := w.replica("a", plan{schedule: Every(10 * time.Second), core: []core.Option{core.WithObserver(observer)}})
				till(15 * time.Minute)
				runs := len(w.ran())
				till(16 * time.Minute)
				if n := len(w.ran()) - runs; n < 5 || left.Load() > 0 {
					t.Errorf("%d runs in the last minute, after all panics but %d", n, left.Load())
				}
				r.end()
				if n := len(r.service.turns); n > 0 || time.Since(at(16*time.Minute)) > time.Minute {
					t.Errorf("%d claims have their turn still, after %v", n, time.Since(at(16*time.Minute)))
				}
			})
		})
	}
}

// No run of a removed job starts, or after Close, however long its claim has waited: it does not wait any more.
func TestEndWhileAClaimWaitsForItsTurn(t *testing.T) {
	for name, end := range map[string]func(r *replica){"Remove": func(r *replica) { r.Remove() }, "Close": (*replica).end} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
				r := w.replica("a", plan{schedule: Every(10 * time.Minute)})
				till(5 * time.Minute)
				n := len(w.ran()) // of the tick before
				for range atOnce {
					r.service.turns <- struct{}{}
				}
				till(10*time.Minute + 10*time.Second)
				told := make(chan error, 1)
				go func() { told <- r.RunDue(t.Context()) }()
				time.Sleep(time.Second)
				end(r)
				if err := <-told; !errors.Is(err, core.ErrClosed) || !time.Now().Equal(at(10*time.Minute+11*time.Second)) {
					t.Errorf("RunDue: %v, at %v", err, time.Now())
				}
				till(15 * time.Minute)
				if ran := w.ran(); len(ran) > n {
					t.Errorf("ran after the end: %+v", ran[n:])
				}
			})
		})
	}
}

// A schedule that panics for a time costs its job the ticks of that time, and no process.
func TestScheduleThatPanics(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		var wrong atomic.Bool
		w.replica("a", plan{schedule: scheduleFunc(func(after time.Time) time.Time {
			if wrong.Load() {
				panic("schedule")
			}
			return Every(time.Minute).Next(after)
		})})
		for _, is := range []bool{true, false} {
			time.Sleep(150 * time.Second)
			wrong.Store(is)
		}
		till(9*time.Minute + 30*time.Second)
		w.want(at(2*time.Minute), at(3*time.Minute), at(4*time.Minute), at(7*time.Minute), at(8*time.Minute), at(9*time.Minute))
	})
}

// A timer does not see that a clock was set, or that its machine slept: a look finds out within a minute.
func TestClocksAreSetAhead(t *testing.T) {
	bubble(t, 5*time.Minute, func(t *testing.T, w *world) {
		w.replica("a", plan{schedule: Every(time.Hour), core: []core.Option{core.WithClockWindow(0)}, job: []JobOption{WithGrace(2 * time.Minute)}})
		till(6 * time.Minute)
		for _, n := range w.nodes {
			n.StepClock(50 * time.Minute)
		}
		till(12 * time.Minute)
		if runs := w.ran(); len(runs) != 1 || runs[0].Tick != at(time.Hour) || runs[0].start.Before(at(10*time.Minute)) {
			t.Errorf("ran %+v", runs)
		}
	})
}
