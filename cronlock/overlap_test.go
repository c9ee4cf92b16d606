package cronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// A span is a run of a job from start to end, and what its context had to say about it.
type span struct {
	Run
	start, end, told time.Time // told is when its context ended, if that was before the run did
	cause            error
}

// spans collects them.
type spans struct {
	mu   sync.Mutex
	all  []span
	over chan struct{} // closed at the end: gocron spins while it waits for runs, which keeps a bubble's time from passing
}

// work is a job that takes so long, unless its context ends before; a deaf one does not look at it.
func (s *spans) work(d time.Duration, deaf bool) func(context.Context) error {
	return func(ctx context.Context) error {
		run, _ := FromContext(ctx)
		sp := span{Run: run, start: time.Now()}
		done := time.NewTimer(d)
		defer done.Stop()
		select {
		case <-done.C:
		case <-ctx.Done():
			sp.told, sp.cause = time.Now(), context.Cause(ctx)
			if deaf {
				select {
				case <-done.C:
				case <-s.over:
				}
			}
		}
		sp.end = time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, sp)
		return nil
	}
}

func (s *spans) list() []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]span(nil), s.all...)
}

// atOnce is the most runs that went on at a time.
func atOnce(all []span) int {
	most := 0
	for _, a := range all {
		n := 0
		for _, b := range all {
			if !a.start.Before(b.start) && a.start.Before(b.end) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Runs of two and a half periods, on three replicas or on one.
func TestOverlap(t *testing.T) {
	const period, work = 10 * time.Second, 25 * time.Second
	for _, replicas := range []int{1, 3} {
		for _, tt := range []struct {
			policy Overlap
			deaf   bool // the job does not look at its context
			runs   int  // that end within 12 periods
			atOnce int
		}{
			{Forbid, false, 3, 1}, // every third tick runs
			{Allow, false, 9, 3},
			{Replace, false, 11, 1},
			{Replace, true, 3, 1}, // nothing can be done about it
		} {
			t.Run(fmt.Sprintf("%v, deaf %v, %d replicas", tt.policy, tt.deaf, replicas), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, w *world) {
					s := spans{over: make(chan struct{})}
					defer close(s.over)
					w.overlapping(replicas, tt.policy, s.work(work, tt.deaf))
					time.Sleep(12*period + period/2)
					all := s.list()
					if n := len(all); n < tt.runs || n > tt.runs+1 {
						t.Errorf("%d runs, want %d or one more", n, tt.runs)
					}
					if n := atOnce(all); n != tt.atOnce {
						t.Errorf("%d runs at once, want %d", n, tt.atOnce)
					}
					checkReplaced(t, all, tt.policy == Replace, period)
					w.oncePerTick()
					if replicas == 1 {
						w.onlyOverlaps()
					}
				})
			})
		}
	}
}

// overlapping starts replicas of a job that is due every ten seconds.
func (w *world) overlapping(replicas int, policy Overlap, work func(context.Context) error) {
	w.t.Helper()
	for i := range replicas {
		r := w.replica(fmt.Sprint(i), WithOverlap(policy))
		r.job(gocron.CronJob("*/10 * * * * *", true), work)
		r.sched.Start()
	}
}

// checkReplaced checks that runs were told to stop by the next tick, and not before; or, where they are not to be, not
// at all.
func checkReplaced(t *testing.T, all []span, want bool, period time.Duration) {
	t.Helper()
	for _, sp := range all {
		replaced := errors.Is(sp.cause, ErrReplaced)
		if replaced != want {
			t.Errorf("the context of tick %v ended with %v", sp.Tick, sp.cause)
		}
		if replaced && sp.told.Before(sp.Tick.Add(period)) {
			t.Errorf("tick %v was replaced at %v already", sp.Tick, sp.told)
		}
	}
}

func (w *world) oncePerTick() {
	w.t.Helper()
	for tick, n := range w.perTick() {
		if n != 1 {
			w.t.Errorf("tick %v ran %d times", tick, n)
		}
	}
}

// onlyOverlaps checks that ticks failed for no other reason.
func (w *world) onlyOverlaps() {
	w.t.Helper()
	for _, err := range w.failed() {
		if !errors.Is(err, ErrOverlap) {
			w.t.Errorf("a tick failed with %v", err)
		}
	}
}

// A run that takes a while to stop is waited for: the tick that replaces it runs as soon as it has returned.
func TestReplaceWaits(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var s spans
		for i := range 3 {
			r := w.replica(fmt.Sprint(i), WithOverlap(Replace))
			r.job(gocron.CronJob("*/20 * * * * *", true), func(ctx context.Context) error {
				run, _ := FromContext(ctx)
				sp := span{Run: run, start: time.Now()}
				sp.told, sp.cause = ended(ctx)
				if errors.Is(sp.cause, ErrReplaced) {
					time.Sleep(3 * time.Second) // to tidy up
				}
				sp.end = time.Now()
				s.mu.Lock()
				defer s.mu.Unlock()
				s.all = append(s.all, sp)
				return nil
			})
			r.sched.Start()
		}
		time.Sleep(110 * time.Second)
		all := s.list()
		if len(all) < 4 {
			t.Fatalf("%d runs, want 4 or more", len(all))
		}
		if n := atOnce(all); n != 1 {
			t.Errorf("%d runs at once", n)
		}
		for i := 1; i < len(all); i++ {
			if !all[i].Tick.Equal(all[i-1].Tick.Add(20 * time.Second)) {
				t.Errorf("tick %v was followed by %v", all[i-1].Tick, all[i].Tick)
			}
		}
	})
}

// A run that takes its time to end may make the next tick too late.
func TestReplaceKeepsToTheGrace(t *testing.T) {
	for tidyUp, want := range map[time.Duration]int{4 * time.Second: 2, 7 * time.Second: 1} {
		t.Run(fmt.Sprint(tidyUp), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				r := w.replica("0", WithOverlap(Replace), WithMisfireGrace(5*time.Second))
				r.job(gocron.CronJob(minutely, true), func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(tidyUp)
					return context.Cause(ctx)
				})
				r.sched.Start()
				time.Sleep(150 * time.Second) // two ticks
				if n := len(w.ran()); n != want {
					t.Errorf("%d runs, want %d; errors: %v", n, want, w.failed())
				}
			})
		})
	}
}
