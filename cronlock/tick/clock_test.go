package tick

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/race"
)

// A replica whose clock is ahead runs its ticks when they are due by the nodes' clocks: all of them, also where nobody else
// is there to do it.
func TestEarlyReplica(t *testing.T) {
	race.Campaign(t)
	const n = 30
	for _, replicas := range []int{1, 3} {
		for _, ahead := range []time.Duration{40 * time.Millisecond, 350 * time.Millisecond, 5 * time.Second, 40 * time.Second} {
			t.Run(fmt.Sprintf("%v, %d replicas", ahead, replicas), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					w.replica("early", plan{period: time.Second, ahead: ahead})
					for i := range replicas - 1 {
						w.replica(fmt.Sprint(i), plan{period: time.Second})
					}
					first := untilMinute(500 * time.Millisecond)
					w.forget()
					time.Sleep(n * time.Second)
					w.want(ticks(first.Add(time.Second), time.Second, n)...)
					for _, r := range w.ran() {
						if late := r.start.Sub(r.Tick); late > 100*time.Millisecond {
							t.Errorf("tick %s ran on %s late by %v", stamp(r.Tick), r.replica, late)
						}
					}
				})
			})
		}
	}
}

// Runs that last longer than the period have ticks skipped, also where each tick came too early: there is no queue.
func TestEarlyReplicaOfALongJob(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.replica("early", plan{period: time.Second, ahead: 5 * time.Second, work: func(context.Context) error {
			time.Sleep(2500 * time.Millisecond)
			return nil
		}})
		untilMinute(0)
		w.forget()
		time.Sleep(30 * time.Second)
		for _, r := range w.ran() {
			if late := r.start.Sub(r.Tick); late > 100*time.Millisecond {
				t.Errorf("tick %s ran late by %v", stamp(r.Tick), late)
			}
		}
		if n := len(w.ran()); n != 10 {
			t.Errorf("%d runs in 30s", n)
		}
	})
}

// A replica whose clock is behind runs what is due by the nodes' clocks, and nothing twice.
func TestLateReplica(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.replica("late", plan{ahead: -5 * time.Second, period: 10 * time.Second})
		first := untilMinute(6 * time.Second)
		w.forget()
		time.Sleep(time.Minute)
		w.want(ticks(first.Add(10*time.Second), 10*time.Second, 6)...)
	})
}

// A clock that is off by more than the limit keeps its replica from running anything, early or late.
func TestClockPastTheLimit(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Minute, -2 * time.Minute} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				r := w.replica("off", plan{period: time.Second, idle: true, ahead: ahead})
				time.Sleep(10 * time.Second)
				began := time.Now()
				if err := r.RunDue(t.Context()); !errors.Is(err, ErrClock) || time.Since(began) > time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				w.want()
			})
		})
	}
}

// No replica has all ticks, also if its clock is ahead.
func TestSpread(t *testing.T) {
	race.Campaign(t)
	bubble(t, func(t *testing.T, w *world) {
		of := map[string]time.Duration{"a": 0, "b": 200 * time.Millisecond, "c": 0}
		for name, ahead := range of {
			w.replica(name, plan{period: time.Second, ahead: ahead})
		}
		time.Sleep(300*time.Second + 500*time.Millisecond)
		share, per := map[string]int{}, map[time.Time]int{}
		for _, r := range w.ran() {
			share[r.replica]++
			per[r.Tick]++
			if r.start.Before(r.Tick) || r.start.Sub(r.Tick) > 60*time.Millisecond || per[r.Tick] > 1 {
				t.Errorf("tick %s ran on %s %v after it, for the %d. time", stamp(r.Tick), r.replica, r.start.Sub(r.Tick), per[r.Tick])
			}
		}
		for name := range of { // a hundred each, give or take eight
			if share[name] < 30 {
				t.Errorf("%s ran %d: %v", name, share[name], share)
			}
		}
		if len(per) != 300 {
			t.Errorf("%d ticks ran", len(per))
		}
	})
}

// The delay is at most a twentieth of the period.
func TestSpreadOfShortPeriods(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := w.alone(every(time.Minute), nil)
		for range 50 {
			began := time.Now()
			of := newTick(Tick{At: began, Exact: true, Period: 100 * time.Millisecond}, r.policy)
			if err := (&Claim{job: r.Job, tick: of, ctx: t.Context()}).await(); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d > 5*time.Millisecond {
				t.Errorf("it took %v", d)
			}
		}
	})
}
