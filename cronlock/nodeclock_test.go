package cronlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/logbook"
)

// The clocks of nodes step by a minute. Without a clock window too, no tick starts more often than it may.
func TestNodesStepWithoutAWindow(t *testing.T) {
	for _, starts := range []int{1, 3} {
		t.Run(fmt.Sprint(starts), func(t *testing.T) {
			bubble(t, 30*time.Second, func(t *testing.T, w *world) {
				w.replicas(3, plan{schedule: Every(5 * time.Second), core: []core.Option{core.WithClockWindow(0)}, job: []JobOption{AtLeastOnce(starts)}, work: hold(3 * time.Second)})
				w.step(rand.New(rand.NewPCG(uint64(starts), 1)))
				w.wantStarts(starts)
			})
		})
	}
}

// step makes clocks of one node, or of all, step by a minute, back and forth, and in the end they are right.
func (w *world) step(rng *rand.Rand) {
	off := make([]time.Duration, len(w.nodes))
	for range 12 {
		one, d := rng.IntN(2*len(w.nodes)), time.Minute
		if rng.IntN(2) == 0 {
			d = -d
		}
		for i, n := range w.nodes {
			if one < len(w.nodes) && i != one {
				continue
			}
			if off[i] != 0 {
				d = -off[i]
			}
			n.StepClock(d)
			off[i] += d
		}
		time.Sleep(time.Duration(rng.IntN(30000)) * time.Millisecond)
	}
	for i, n := range w.nodes {
		n.StepClock(-off[i])
	}
	time.Sleep(2 * time.Minute)
}

// wantStarts checks that no tick started too often.
func (w *world) wantStarts(most int) {
	w.t.Helper()
	starts, runs := map[time.Time]int{}, w.ran()
	for _, r := range runs {
		if starts[r.Tick]++; starts[r.Tick] > most {
			w.t.Errorf("tick %v started %d times", r.Tick, starts[r.Tick])
		}
	}
	if last := runs[len(runs)-1]; len(runs) < 20 || time.Since(last.start) > 10*time.Second {
		w.t.Errorf("%d runs, the last at %v", len(runs), last.start)
	}
}

// A replica whose clock is beyond the window starts nothing, and says why, once.
func TestClockBeyondTheWindow(t *testing.T) {
	withAndWithoutHosts(t, 30*time.Second, func(t *testing.T, w *world, host bool) {
		var log logbook.Book
		for _, n := range w.nodes {
			n.StepClock(3 * time.Second)
		}
		r := w.replica("a", plan{host: host, core: []core.Option{core.WithLogger(log.Logger())}})
		till(5*time.Minute + 30*time.Second)
		w.want()
		err := r.RunDue(t.Context())
		if e := new(Error); !errors.As(err, &e) || !errors.Is(err, core.ErrUnavailable) || IsExpected(err) {
			t.Errorf("RunDue: %v", err)
		}
		told := w.refused()
		for _, err := range append(told, err) {
			if !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "check NTP") {
				t.Errorf("the host was told %v", err)
			}
		}
		logged := 1 // a host logs what it is told
		if host {
			logged = 0
		}
		if log.Want(t, logged, "a tick cannot start", "check NTP"); host != (len(told) > 5) {
			t.Errorf("the host was told %d times", len(told))
		}
		for _, n := range w.nodes {
			n.StepClock(-3 * time.Second)
		}
		till(8*time.Minute + 30*time.Second)
		if runs := w.ran(); len(runs) < 3 {
			t.Errorf("%d runs after the clocks were set right", len(runs))
		}
	})
}
