package cronlock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// hold returns a function that takes so long, or until it is told to stop.
func hold(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A tick starts late while it is within the grace, and is missed afterwards.
func TestNodesAway(t *testing.T) {
	for _, c := range []struct {
		away time.Duration
		runs []time.Time
	}{{40 * time.Second, []time.Time{at(time.Hour)}}, {90 * time.Second, nil}} {
		t.Run(c.away.String(), func(t *testing.T) {
			withAndWithoutHosts(t, 55*time.Minute, func(t *testing.T, w *world, host bool) {
				w.replicas(3, plan{schedule: Every(time.Hour), host: host})
				till(time.Hour - time.Second)
				for _, n := range w.nodes {
					n.Down()
				}
				time.Sleep(c.away)
				for _, n := range w.nodes {
					n.Up()
				}
				till(time.Hour + 10*time.Minute)
				w.want(c.runs...)
				if missed := w.count(EventMissed) > 0; missed == (c.runs != nil) {
					t.Errorf("an event of a missed tick: %v", missed)
				}
			})
		})
	}
}

// A new job has missed nothing, whatever fell due before it was added. One that is known has.
func TestNewJobHasMissedNothing(t *testing.T) {
	bubble(t, 5*time.Minute, func(t *testing.T, w *world) {
		var log logbook.Book
		p := plan{schedule: Every(10 * time.Minute), core: []core.Option{core.WithLogger(log.Logger())}}
		a := w.replica("a", p)
		time.Sleep(time.Minute)
		if err := a.RunDue(t.Context()); !errors.Is(err, ErrNotDue) || !IsExpected(err) || w.count(EventMissed) != 0 {
			t.Errorf("RunDue of a new job: %v; %d events", err, w.count(EventMissed))
		}
		log.Want(t, 0, "a tick cannot start")
		till(11 * time.Minute)
		a.end()
		till(25 * time.Minute)
		b := w.replica("b", p)
		time.Sleep(time.Minute)
		if err := b.RunDue(t.Context()); !errors.Is(err, ErrMissed) || IsExpected(err) {
			t.Errorf("RunDue of a job that missed a tick: %v", err)
		}
		log.Want(t, 1, "a tick cannot start")
		w.want(at(10 * time.Minute))
	})
}

// All nodes lose their memory just before an hourly tick: it runs when they vote again.
func TestNodesEmptied(t *testing.T) {
	bubble(t, 55*time.Minute, func(t *testing.T, w *world) {
		w.replicas(3, plan{schedule: Every(time.Hour), host: true})
		till(time.Hour - 3*time.Second)
		for _, n := range w.nodes {
			n.RestartEmpty()
		}
		till(time.Hour + 30*time.Second)
		w.want(at(time.Hour))
	})
}

// The death of a replica that has claimed a tick, and not recorded its start, costs the job a TTL.
func TestClaimantDies(t *testing.T) {
	bubble(t, 58*time.Minute, func(t *testing.T, w *world) {
		a := w.replica("a", plan{schedule: Every(time.Hour), host: true})
		a.asleep.Store(true)
		till(time.Hour + time.Millisecond)
		c, err := a.Claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.replica("b", plan{schedule: Every(time.Hour)}).asleep.Store(true)
		a.crash()
		till(time.Hour + ttl + 2*time.Second)
		w.want(at(time.Hour))
		if runs := w.ran(); len(runs) == 1 && runs[0].replica != "b" {
			t.Errorf("it ran on %s", runs[0].replica)
		}
		c.End()
	})
}

// Host clocks that are ahead, by more than a period too, delay nothing and start nothing early.
func TestHostAhead(t *testing.T) {
	for _, ahead := range []time.Duration{1500 * time.Millisecond, 5 * time.Second, time.Minute} {
		for name, others := range map[string]int{"alone": 0, "beside others": 2} {
			t.Run(fmt.Sprintf("%v, %s", ahead, name), func(t *testing.T) {
				bubble(t, 300*time.Millisecond, func(t *testing.T, w *world) {
					w.replica("a", plan{schedule: Every(time.Second), host: true, ahead: ahead})
					w.replicas(others, plan{schedule: Every(time.Second), host: true})
					till(time.Minute + time.Second/2)
					runs := w.ran()
					w.want(ticks(runs[0].Tick, time.Second, len(runs))...)
					if n := len(runs); n < 58 {
						t.Errorf("%d runs in a minute", n)
					}
				})
			})
		}
	}
}

// A host that never calls costs a second for each tick.
func TestHostNeverCalls(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{host: true})
		r.asleep.Store(true) // but the engine's calls come through
		till(10*time.Minute + 30*time.Second)
		w.want(ticks(midnight, time.Minute, 11)...)
		for _, run := range w.ran()[1:] {
			if late := run.start.Sub(run.Tick); late > 2*time.Second {
				t.Errorf("tick %v started %v late", run.Tick, late)
			}
		}
	})
}

// After Close nothing starts; runs that the engine began end by themselves, and Close waits for them.
func TestCloseWaitsForLateRuns(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{work: hold(20 * time.Second)})
		till(31 * time.Second)
		c, err := r.ClaimNow(t.Context())
		if !errors.Is(err, core.ErrHeld) {
			t.Fatalf("a run by hand beside another: %v, %v", c, err)
		}
		began := time.Now()
		if err := r.service.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if runs := w.ran(); len(runs) != 1 || runs[0].end.IsZero() || time.Since(began) < 15*time.Second {
			t.Errorf("Close returned after %v, of %v", time.Since(began), runs)
		}
		if err := r.RunDue(t.Context()); !errors.Is(err, core.ErrClosed) {
			t.Errorf("RunDue after Close: %v", err)
		}
		if _, err := r.service.Add("other", Every(time.Minute), r.work); !errors.Is(err, core.ErrClosed) {
			t.Errorf("Add after Close: %v", err)
		}
		r.ended = true
	})
}

// An end of its context that Close's caller sets bounds the wait, and the error names the jobs that run.
func TestCloseNamesRuns(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		r := w.replica("a", plan{work: hold(time.Minute)})
		till(31 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.service.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || err.Error() != `cronlock: not everything has ended; jobs that run: ["job"]: context deadline exceeded` {
			t.Errorf("Close: %v", err)
		}
		idle, err := New(w.first.Replica().Locker, "other")
		if err != nil {
			t.Fatal(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := idle.Close(gone); err != nil {
			t.Errorf("Close of a service without runs: %v", err)
		}
	})
}
