package cronlock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
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

// A tight loop of calls runs nothing twice.
func TestTightLoop(t *testing.T) {
	bubble(t, 115*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{})
		ctx, stop := context.WithCancel(t.Context())
		for range 3 {
			r.calls.Go(func() {
				for ctx.Err() == nil {
					r.call(ctx)
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		till(2*time.Minute + 5*time.Second)
		stop()
		w.want(ticks(at(time.Minute), time.Minute, 2)...)
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
