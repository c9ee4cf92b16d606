package cronlock

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

// Leaders come and go while a job runs every second: no tick runs twice, and none overlaps another.
func TestTicksOnceWhileLeadersChange(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		running := 0
		_, all := w.members(3, secondly, func(m *member, ctx context.Context) error {
			w.mu.Lock()
			running++
			if running > 1 {
				t.Error("two runs at once")
			}
			w.mu.Unlock()
			defer func() {
				w.mu.Lock()
				running--
				w.mu.Unlock()
			}()
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
				if rng.IntN(3) == 0 {
					m.cable.Cut()
					await(t, ttl, "it leads no more", func() bool { return !m.leads() })
					m.cable.Mend()
				} else if err := m.Resign(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
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
			t.Errorf("%d runs on %d replicas in %v: the test has shown little", len(w.ran()), len(replicas), time.Since(start))
		}
	})
}
