package cronlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// If another process has recorded a start first, a claim of that start does not run the tick.
func TestStartOfAnother(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		a, b := w.replica("a", plan{job: uncalled}), w.replica("b", plan{job: uncalled})
		c, err := a.newClaim(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}

		other := &claim{job: b.Job, entry: c.entry}
		if mine, _, err := other.writeRecord(t.Context(), b.startKey(c.tick, 1), nil); err != nil || !mine {
			t.Fatalf("%v, %v", mine, err)
		}

		if err := errors.Join(c.Call(), c.End()); !errors.Is(err, core.ErrDone) {
			t.Errorf("Call: %v", err)
		}
		w.want()
	})
}

// A host that calls the claim of a tick repeatedly starts the tick once. A claim by hand runs at each call. The tick
// comes first in this test, because the engine polls when a run by hand ends, and would claim the tick.
func TestCalledTooOften(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		r := w.replica("a", plan{job: uncalled})
		for _, byHand := range []bool{false, true} {
			c, err := r.newClaim(t.Context(), byHand)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				if err := c.Call(); errors.Is(err, core.ErrDone) != (i > 0 && !byHand) {
					t.Errorf("by hand: %v: Call %d: %v", byHand, i, err)
				}
			}
			if err := c.End(); err != nil {
				t.Error(err)
			}
		}
		if n := w.events.Count("cronlock tick_run"); n != 4 {
			t.Errorf("%d runs", n)
		}
	})
}

// If a host ends a claim without calling it, the engine asks for another call soon, even if a poll has found the lease
// held meanwhile.
func TestClaimIsGivenBack(t *testing.T) {
	bubble(t, 2*time.Minute-time.Second, func(t *testing.T, w *world) {
		calls := make(chan time.Time, 10)
		r := w.replica("a", plan{job: []JobOption{WithHost(func() { calls <- time.Now() })}})
		<-calls // for the tick before

		till(2 * time.Minute)
		c, err := r.newClaim(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}

		till(2*time.Minute + 2*time.Second)
		_ = c.End()
		if again := <-calls; again.After(at(2*time.Minute + 8*time.Second)) {
			t.Errorf("called again at %v", again)
		}
	})
}

// A claim in which an observer panics leaves nothing behind: its poll slot and its lease are free, and Close does not
// wait for it.
func TestObserverPanicsInAClaim(t *testing.T) {
	race.SkipSweep(t)
	for name, kind := range map[string]core.OpKind{"acquire": core.OpAcquire, "hold": core.OpHold, "release": core.OpRelease} {
		bubbleOf(t, name, 2*time.Minute, func(t *testing.T, w *world) {
			var left atomic.Int32
			left.Store(maxConcurrentPolls + 1)
			r := w.replica("a", plan{schedule: Every(10 * time.Second), core: []core.Option{core.WithObserver(core.Observer{
				Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
					if op.Kind == kind && left.Add(-1) >= 0 {
						panic("observer")
					}
					return ctx, nil
				}})}})

			till(15 * time.Minute)
			runs := len(w.ran())
			till(16 * time.Minute)

			r.end()
			if n := len(w.ran()) - runs; n < 5 || left.Load() > 0 || len(r.service.pollSlots) > 0 || time.Since(at(16*time.Minute)) > time.Minute {
				t.Errorf("%d runs in the last minute, after all panics but %d; %d claims have their turn at %v", n, left.Load(), len(r.service.pollSlots), time.Now())
			}
		})
	}
}

// A tick that falls due during a poll for the tick before starts after that poll.
func TestTickFallsDueDuringALook(t *testing.T) {
	for before := time.Second; before < 1400*time.Millisecond; before += 50 * time.Millisecond {
		bubbleOf(t, before.String(), 2*time.Minute-before, func(t *testing.T, w *world) {
			w.each(func(n *testutil.Node) { n.SlowReplies(100 * time.Millisecond) })
			w.replica("a", plan{schedule: At(midnight, at(2*time.Minute))}) // the tick at midnight is too old to start
			till(2*time.Minute + 2*time.Second)
			w.want(at(2 * time.Minute))
			w.each((*testutil.Node).Up)
		})
	}
}

// If a schedule panics for a time, its job misses the ticks of that time, and the process goes on.
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

// If a schedule returns other instants than when its job was added, the engine does not call it in a tight loop.
func TestScheduleThatChanges(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		var asked atomic.Int32
		r := w.replica("a", plan{schedule: scheduleFunc(func(after time.Time) time.Time {
			if asked.Add(1) > 1000 {
				return after
			}
			return Every(time.Minute).Next(after)
		})})
		till(20 * time.Minute)
		if n := asked.Load(); n > 7000 {
			t.Errorf("asked %d times", n)
		}
		r.Remove()
	})
}

// The last tick of a schedule is started again like any other if its run was interrupted, even after more than an hour.
func TestLastTickIsStartedAgain(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		p := plan{schedule: At(at(time.Minute).In(zone(t, "Asia/Tokyo"))), core: []core.Option{core.TTL(time.Minute)}, job: []JobOption{AtLeastOnce(3)}}
		p.work = func(ctx context.Context) error {
			if run, _ := FromContext(ctx); run.Attempt == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}

		a := w.replica("a", p)
		till(90 * time.Second)
		w.replica("b", p)
		till(70 * time.Minute)
		a.locks.Link.Kill()
		till(75 * time.Minute)

		if runs := w.ran(); len(runs) != 2 || runs[1].Attempt != 2 || runs[1].Tick != at(time.Minute) { // in UTC
			t.Errorf("%+v", runs)
		}
	})
}

// An error of the job's function is not expected, except context.Canceled.
func TestIsExpected(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		var fails error
		r := w.replica("a", plan{job: uncalled, work: func(context.Context) error { return fails }})
		for _, c := range []struct {
			err  error
			want bool
		}{{context.DeadlineExceeded, false}, {core.ErrHeld, false}, {core.ErrClosed, false}, {context.Canceled, true}} {
			fails = c.err
			if err := r.RunNow(t.Context()); !errors.Is(err, c.err) || IsExpected(err) != c.want {
				t.Errorf("%v is expected: %v", err, !c.want)
			}
		}
	})
}
