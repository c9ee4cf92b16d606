package cronlock

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// Leaders come and go while a job runs every second: no tick runs twice, and none overlaps another.
func TestTicksOnceWhileLeadersChange(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var running atomic.Int32
		_, all := w.members(3, secondly, func(m *member, ctx context.Context) error {
			if running.Add(1) > 1 {
				t.Error("two runs at once")
			}
			defer running.Add(-1)
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
			return nil
		})
		start := time.Now()
		rng := rand.New(rand.NewPCG(1, 1))
		for range 15 {
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			for _, m := range atHead(all) {
				m.stepsDown(t, rng.IntN(3) == 0)
			}
		}
		w.oneEach(t)
		t.Logf("in %v", time.Since(start))
	})
}

// oneEach wants each tick to have run once, and each of three replicas to have run some.
func (w *world) oneEach(t *testing.T) {
	t.Helper()
	replicas := map[string]bool{}
	for _, r := range w.ran() {
		replicas[r.replica] = true
	}
	for tick, n := range w.perTick() {
		if n != 1 {
			t.Errorf("tick %v ran %d times", tick, n)
		}
	}
	if len(replicas) < 3 || len(w.ran()) < 20 {
		t.Errorf("%d runs on %d replicas: the test has shown little", len(w.ran()), len(replicas))
	}
}

// stepsDown has a leader resign, or lose its term because it reaches no node.
func (m *member) stepsDown(t *testing.T, cut bool) {
	if !cut {
		if err := m.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		return
	}
	m.cable.Cut()
	await(t, ttl, "it leads no more", func() bool { return !m.leads() })
	m.cable.Mend()
}
