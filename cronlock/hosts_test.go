package cronlock

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
)

// Three replicas whose host is robfig/cron.
func TestRobfigCron(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		for _, name := range []string{"a", "b", "c"} {
			r := w.replica(name, plan{host: true})
			r.asleep.Store(true)
			host := cron.New(cron.WithLocation(time.UTC))
			if _, err := host.AddFunc("* * * * *", func() { r.call(t.Context()) }); err != nil {
				t.Fatal(err)
			}
			host.Start()
			t.Cleanup(func() { <-host.Stop().Done() })
		}
		till(7*time.Minute + 30*time.Second)
		w.want(ticks(at(2*time.Minute), time.Minute, 6)...)
	})
}

// A host that is ahead by less than the engine waits for it costs nothing: its early calls count.
func TestHostALittleAhead(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		w.replica("a", plan{host: true, ahead: 400 * time.Millisecond})
		till(6*time.Minute + 30*time.Second)
		w.want(ticks(at(2*time.Minute), time.Minute, 5)...)
		for _, r := range w.ran()[1:] {
			if late := r.start.Sub(r.Tick); late > lookLate/2 {
				t.Errorf("tick %v started %v late", r.Tick, late)
			}
		}
	})
}

// A start that another process has recorded first is not this one's.
func TestStartOfAnother(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		a := w.replica("a", plan{host: true})
		b := w.replica("b", plan{host: true})
		a.asleep.Store(true)
		b.asleep.Store(true)
		till(3*time.Minute + 10*time.Millisecond)
		c, err := a.Claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		other := &Claim{job: b.Job, entry: c.entry}
		if mine, err := other.write(t.Context(), b.startKey(c.tick, 1), nil); err != nil || !mine {
			t.Fatalf("%v, %v", mine, err)
		}
		if err := c.Call(); !errors.Is(err, core.ErrDone) {
			t.Errorf("Call: %v", err)
		}
		if err := c.End(); err != nil {
			t.Error(err)
		}
		w.want(at(2 * time.Minute))
	})
}

// A host that calls a claim too often starts its tick once. The tick comes first: when a run by hand ends, the engine looks,
// and would take it.
func TestCalledTooOften(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		r := w.replica("a", plan{host: true})
		r.asleep.Store(true)
		till(3*time.Minute + 10*time.Millisecond)
		for _, byHand := range []bool{false, true} {
			c, err := r.claim(t.Context(), byHand)
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
		if n := w.count(EventRun); n != 5 {
			t.Errorf("%d runs", n)
		}
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
