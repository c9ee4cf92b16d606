package cronlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// A start that another process has recorded first is not this one's.
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

// A host that calls a claim too often starts its tick once. The tick comes first: when a run by hand ends, the engine looks,
// and would take it.
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

// A claim that its host gives back uncalled is made again soon, although a look has seen its lease meanwhile.
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

// A claim in which an observer panics leaves nothing behind: neither its turn among those of the jobs, nor the lease, nor
// what Close waits for.
func TestObserverPanicsInAClaim(t *testing.T) {
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

// A tick that falls due while a look for the one before goes on is looked for when that has ended.
func TestTickFallsDueDuringALook(t *testing.T) {
	for before := time.Second; before < 1400*time.Millisecond; before += 50 * time.Millisecond {
		bubbleOf(t, before.String(), 2*time.Minute-before, func(t *testing.T, w *world) {
			w.each(func(n *testutil.Node) { n.SlowReplies(100 * time.Millisecond) })
			w.replica("a", plan{schedule: At(midnight, at(2*time.Minute))}) // midnight's is too old
			till(2*time.Minute + 2*time.Second)
			w.want(at(2 * time.Minute))
			w.each((*testutil.Node).Up)
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

// A schedule that names other instants than it did when it was added costs no loop.
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

// The last tick of a schedule is started again like any other when its run has ended after more than an hour, without
// completing.
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

// What the function itself has failed with is not expected, unless it was told to stop.
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
