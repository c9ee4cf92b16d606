package cronlock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
)

// refused checks that n errors have reached AfterLockError, each a TickError of the job, with a tick or without,
// that matches one sentinel and none of the others.
func (w *world) refused(n int, sentinel error, withTick bool) {
	w.t.Helper()
	errs := w.failed()
	if len(errs) != n {
		w.t.Errorf("%d errors, want %d", len(errs), n)
	}
	sentinels := []error{core.ErrHeld, core.ErrDone, core.ErrUnavailable, core.ErrClosed, ErrNotLeader, ErrMissed, ErrClock, ErrNotDue}
	for _, err := range errs {
		var tick *TickError
		if !errors.As(err, &tick) || tick.Job != "job" || tick.Tick.IsZero() == withTick {
			w.t.Errorf("not the TickError of the tick: %#v", err)
		}
		for _, s := range sentinels {
			alike := s == sentinel || sentinel == ErrClock && s == core.ErrUnavailable
			if errors.Is(err, s) != (s == sentinel) && !alike {
				w.t.Errorf("matches %q: %v", s, err)
			}
		}
		if !errors.Is(err, sentinel) {
			w.t.Errorf("does not match %q: %v", sentinel, err)
		}
	}
}

// Why a tick does not run here reaches AfterLockError.
func TestRefusals(t *testing.T) {
	for name, refusal := range map[string]func(t *testing.T, w *world){
		"done":            refusedAsDone,
		"held":            refusedAsHeld,
		"overlap":         refusedForOverlap,
		"overlap by hand": refusedForOverlapByHand,
		"unavailable":     refusedAsUnavailable,
		"closed":          refusedAsClosed,
		"not leader":      refusedAsNotLeader,
	} {
		t.Run(name, func(t *testing.T) { bubble(t, 3, refusal) })
	}
}

func refusedAsDone(t *testing.T, w *world) {
	w.fleet(gocron.CronJob(secondly, true), plan{n: 2, skew: 300 * time.Millisecond})
	time.Sleep(5*time.Second + 500*time.Millisecond)
	w.refused(5, core.ErrDone, true)
	var op *core.OpError
	for _, err := range w.failed() {
		if !errors.As(err, &op) || op.Record == nil {
			t.Errorf("without the record of the run: %v", err)
		}
	}
}

func refusedAsHeld(t *testing.T, w *world) {
	w.fleet(gocron.CronJob("* * * * *", false), plan{n: 2, skew: 2 * time.Second, work: lasting(30 * time.Second)})
	time.Sleep(3*time.Minute + 50*time.Second)
	w.refused(3, core.ErrHeld, true)
}

func refusedForOverlap(t *testing.T, w *world) {
	w.fleet(gocron.CronJob(secondly, true), plan{n: 1, work: lasting(3500 * time.Millisecond)})
	time.Sleep(4*time.Second + 200*time.Millisecond)
	w.refused(3, core.ErrHeld, true)
}

func refusedForOverlapByHand(t *testing.T, w *world) {
	f := w.fleet(gocron.CronJob("* * * * *", false), plan{n: 1, work: lasting(30 * time.Second)})
	time.Sleep(70 * time.Second)
	f.runNow(0)
	time.Sleep(time.Second)
	w.refused(1, core.ErrHeld, false)
}

func refusedAsUnavailable(t *testing.T, w *world) {
	w.fleet(gocron.CronJob(secondly, true), plan{n: 1})
	w.nodes[0].Down()
	w.nodes[1].Down()
	time.Sleep(3*time.Second + 900*time.Millisecond)
	if len(w.ran()) != 0 {
		t.Errorf("ran %v", w.ran())
	}
	w.refused(3, core.ErrUnavailable, true)
	w.nodes[0].Up()
	w.nodes[1].Up()
	time.Sleep(10 * time.Second) // go-redis is still dialling
	if len(w.ran()) < 8 {
		t.Errorf("%d runs since the nodes are back", len(w.ran()))
	}
}

func refusedAsClosed(t *testing.T, w *world) {
	f := w.fleet(gocron.CronJob(secondly, true), plan{n: 1})
	if err := f.replicas[0].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3*time.Second + 500*time.Millisecond)
	w.refused(3, core.ErrClosed, true)
}

func refusedAsNotLeader(t *testing.T, w *world) {
	w.elector("leader")
	time.Sleep(time.Second)
	locks := w.locks()
	r := w.replicaOn("0", locks, WithElector(w.electorOn("0", locks).Elector))
	r.job(gocron.CronJob(secondly, true), nil)
	r.sched.Start()
	time.Sleep(3*time.Second + 500*time.Millisecond)
	w.refused(len(w.failed()), ErrNotLeader, true)
	if n := len(w.failed()); n != 3 && n != 4 || len(w.ran()) != 0 {
		t.Errorf("%d errors, %d runs", n, len(w.ran()))
	}
}

// A tick that starts later than the misfire grace is missed, whoever is late: the process, or its clock.
func TestLateTicks(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		// A clock that is behind brings ticks late.
		f := w.fleet(gocron.CronJob("* * * * *", false), plan{n: 1, skew: -3 * time.Second, opts: []Option{WithMisfireGrace(2 * time.Second)}})
		time.Sleep(5*time.Minute + 30*time.Second)
		if len(w.ran()) != 0 {
			t.Errorf("ran %v", w.ran())
		}
		w.refused(len(w.failed()), ErrMissed, true)
		if len(w.failed()) < 5 {
			t.Errorf("%d ticks were missed", len(w.failed()))
		}
		f.runNow(0)
		time.Sleep(10 * time.Millisecond)
		if w.manual() != 1 {
			t.Errorf("%d runs by hand", w.manual())
		}
	})
}

// A replica whose clock is behind runs what is due by the nodes' clocks, where its own brings calls often enough.
func TestClockBehind(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		f := w.fleet(gocron.CronJob(secondly, true), plan{n: 1, skew: -3 * time.Second, opts: []Option{WithMisfireGrace(2 * time.Second)}})
		time.Sleep(5*time.Second + 500*time.Millisecond)
		f.once(5)
	})
}

// A call that queued for longer than the grace misses its tick, and records nothing: others may have had it.
func TestLateCalls(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		w.fleet(gocron.CronJob("0,1 * * * * *", true), plan{n: 1, work: lasting(20 * time.Second), opts: []Option{WithMisfireGrace(10 * time.Second)},
			jobOpts: []JobOption{WithGocron(gocron.WithSingletonMode(gocron.LimitModeWait))}})
		time.Sleep(90 * time.Second)
		w.refused(1, ErrMissed, true)
		if keys := w.nodes[0].Keys(); strings.Contains(strings.Join(keys, " "), core.Key("tick", "2000-01-01T00:01:01Z")) ||
			!strings.Contains(strings.Join(keys, " "), core.Key("tick", "2000-01-01T00:01:00Z")) {
			t.Errorf("recorded: %q", keys)
		}
	})
}

// A replica whose clock is off by more than the limit refuses its ticks, both ways.
func TestClockOff(t *testing.T) {
	for _, skew := range []time.Duration{70 * time.Second, -70 * time.Second} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) { clockOff(t, w, skew) })
		})
	}
}

func clockOff(t *testing.T, w *world, skew time.Duration) {
	f := w.fleet(gocron.CronJob("* * * * *", false), plan{n: 2, skew: skew})
	time.Sleep(5*time.Minute + 30*time.Second)
	f.once(5)
	for _, r := range w.ran() {
		if r.replica == "0" {
			t.Errorf("the replica whose clock is off ran %v", r.Tick)
		}
	}
	off := 0
	for _, err := range w.failed() {
		if errors.Is(err, ErrClock) {
			off++
		}
	}
	if off < 5 {
		t.Errorf("%d of the errors say so: %v", off, w.failed())
	}
}

// Nodes whose clocks differ from the replica's by more than core's window do not vote; if that leaves no quorum,
// the error says that the clock is the cause, and a minority of them does not matter.
func TestNodeClocksOff(t *testing.T) {
	for off := 1; off <= 3; off++ {
		t.Run(fmt.Sprint(off), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				f := w.fleet(gocron.CronJob(secondly, true), plan{n: 2})
				time.Sleep(2*time.Second + 500*time.Millisecond)
				for _, n := range w.nodes[:off] {
					n.StepClock(-20 * time.Second)
				}
				w.mu.Lock()
				w.errs = nil
				w.mu.Unlock()
				time.Sleep(3*time.Second + 450*time.Millisecond) // an attempt takes up to half a period
				if off == 1 {
					f.once(5)
					return
				}
				f.atMostOnce()
				if len(w.ran()) != 2 {
					t.Errorf("%d runs", len(w.ran()))
				}
				w.refused(6, ErrClock, true)
			})
		})
	}
}

// The clocks of all nodes and of the one replica are off alike: nothing can tell, and each tick runs once.
func TestOffsetWithinLimit(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.StepClock(300 * time.Millisecond)
		}
		f := w.fleet(gocron.CronJob(secondly, true), plan{skew: -300 * time.Millisecond})
		time.Sleep(10*time.Second + 500*time.Millisecond)
		f.once(10)
	})
}
