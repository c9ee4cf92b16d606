package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/core"
)

// What becomes of a tick whose holder dies in mid-run.
func TestHolderDies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy []Option
		dead   int // so many of the four replicas die as soon as they run the tick
		starts int
	}{
		{"at most once", nil, 1, 1},
		{"at least once", []Option{AtLeastOnce(2)}, 1, 2},
		{"at least once, more would be allowed", []Option{AtLeastOnce(5)}, 1, 2},
		{"at least once, two die", []Option{AtLeastOnce(5)}, 2, 3},
		{"at least once, with runs that may overlap", []Option{AtLeastOnce(5), WithOverlap(Allow)}, 2, 3},
		{"at least once, with runs to be replaced", []Option{AtLeastOnce(5), WithOverlap(Replace)}, 2, 3},
		{"a tick that kills whoever runs it", []Option{AtLeastOnce(2)}, 4, 2},
		{"past the grace, which is for the first start", []Option{AtLeastOnce(5), WithMisfireGrace(ttl / 2)}, 1, 2},
		{"past the grace the second time", []Option{AtLeastOnce(5), WithMisfireGrace(ttl + ttl/2)}, 4, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { holderDies(t, w, tt.policy, tt.dead, tt.starts) })
		})
	}
}

// An end is that of a context.
type end struct {
	at    time.Time
	cause error
}

func holderDies(t *testing.T, w *world, policy []Option, deaths, starts int) {
	ends := make(chan end, 10)
	for i := range 4 {
		r, die := w.mortal(fmt.Sprint(i), policy...)
		r.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
			w.mu.Lock()
			dies := deaths > 0
			deaths--
			w.mu.Unlock()
			if !dies {
				return nil
			}
			die()
			at, cause := ended(ctx)
			ends <- end{at, cause}
			return nil
		})
		r.sched.Start()
	}
	time.Sleep(119 * time.Second) // from midnight on: until short before the second tick

	runs := w.ran()
	if len(runs) != starts {
		t.Fatalf("%d starts, want %d: %v; errors: %v", len(runs), starts, runs, w.failed())
	}
	attemptsInOrder(t, runs)
	for i, r := range runs {
		if !r.Tick.Equal(runs[0].Tick) {
			t.Errorf("run %d is of tick %v", i+1, r.Tick)
		}
		if i == 0 {
			continue
		}
		e := <-ends
		if !errors.Is(e.cause, core.ErrLost) {
			t.Errorf("attempt %d ended with %v", i, e.cause)
		}
		if !e.at.Before(r.at) {
			t.Errorf("attempt %d started at %v, when the one before had not ended, at %v", i+1, r.at, e.at)
		}
	}
}

// After a tick whose holder has died, the job goes on: the next ticks run as usual.
func TestJobOutlivesHolder(t *testing.T) {
	t.Parallel()
	for _, policy := range []JobOption{AtMostOnce(), AtLeastOnce(2)} {
		serialBubble(t, 3, func(t *testing.T, w *world) { jobOutlivesHolder(t, w, policy) })
	}
}

func jobOutlivesHolder(t *testing.T, w *world, policy JobOption) {
	first := true
	for i := range 3 {
		r, die := w.mortal(fmt.Sprint(i), policy)
		r.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
			w.mu.Lock()
			dies := first
			first = false
			w.mu.Unlock()
			if dies {
				die()
				<-ctx.Done()
			}
			return nil
		})
		r.sched.Start()
	}
	time.Sleep(5*time.Minute + time.Second)
	ticks := w.perTick()
	if len(ticks) != 5 {
		t.Errorf("%d ticks ran, want 5: %v", len(ticks), ticks)
	}
	dead := w.ran()[0]
	for tick, n := range ticks {
		if n != 1 && !tick.Equal(dead.Tick) {
			t.Errorf("tick %v ran %d times", tick, n)
		}
	}
	for _, r := range w.ran()[1:] {
		if r.replica == dead.replica {
			t.Errorf("tick %v ran on the dead replica", r.Tick)
		}
	}
}

// A panic that gocron recovers from is no completion.
func TestPanic(t *testing.T) {
	for _, tt := range []struct {
		policy JobOption
		panics int
		starts int
	}{
		{AtMostOnce(), 1, 1},
		{AtLeastOnce(3), 1, 2},
		{AtLeastOnce(3), 9, 3},
	} {
		t.Run(fmt.Sprintf("%d panics, %d starts", tt.panics, tt.starts), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				recovered := w.panicking(tt.policy, tt.panics)
				time.Sleep(119 * time.Second)
				runs := w.ran()
				if len(runs) != tt.starts {
					t.Fatalf("%d starts, want %d: %v; errors: %v", len(runs), tt.starts, runs, w.failed())
				}
				attemptsInOrder(t, runs)
				if n, want := recovered(), min(tt.panics, tt.starts); n != want {
					t.Errorf("%d panics, want %d", n, want)
				}
				if last := runs[len(runs)-1].at.Sub(runs[0].at); last > ttl {
					t.Errorf("the last start came %v after the first: not at once, but when a lease had ended", last)
				}
			})
		})
	}
}

// panicking starts four replicas, as one that has panicked does not watch the tick. Their first runs panic, so many of
// them; recovered returns from how many panics gocron has recovered.
func (w *world) panicking(policy JobOption, panics int) (recovered func() int) {
	w.t.Helper()
	var left, caught atomic.Int64
	left.Store(int64(panics))
	for i := range 4 {
		r := w.replica(fmt.Sprint(i), policy)
		r.job(gocron.CronJob(minutely, true), func(context.Context) error {
			time.Sleep(time.Second) // for the others to see the tick
			if left.Add(-1) >= 0 {
				panic("on purpose")
			}
			return nil
		}, listeners(gocron.AfterJobRunsWithPanic(func(uuid.UUID, string, any) { caught.Add(1) })))
		r.sched.Start()
	}
	return func() int { return int(caught.Load()) }
}
