package cronlock

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Each tick that fell due while nobody led is run by the next leader, and so is, at least once, the one in whose run the
// leader was cut off.
func TestTicksOfAGap(t *testing.T) {
	const cuts = 4
	for name, tt := range map[string]struct {
		policy JobOption
		lost   int
	}{
		"at most once":  {AtMostOnce(), cuts}, // one in each run that was cut off
		"at least once": {AtLeastOnce(3), 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				done := completions{of: map[time.Time]bool{}}
				_, all := w.members(3, "*/3 * * * * *", func(_ *member, ctx context.Context) error { return done.work(ctx) }, tt.policy)
				first := time.Now().Truncate(3 * time.Second).Add(3 * time.Second)
				for range cuts {
					time.Sleep(time.Until(time.Now().Truncate(3 * time.Second).Add(15*time.Second + 200*time.Millisecond)))
					old := atHead(all)[0]
					old.cable.Cut()
					time.Sleep(2 * ttl)
					old.cable.Mend()
				}
				last := time.Now()
				time.Sleep(time.Minute)
				lost, skipped := done.missing(all[0].replica, first, last)
				// The lease of a dead leader's run counts as a run.
				if lost > tt.lost || skipped > cuts {
					t.Errorf("%d ticks were not completed, %d skipped: %v", lost, skipped, w.failed())
				}
			})
		})
	}
}

// completions are those of ticks that are due every three seconds.
type completions struct {
	mu sync.Mutex
	of map[time.Time]bool
}

func (c *completions) work(ctx context.Context) error {
	run, _ := FromContext(ctx)
	select {
	case <-time.After(500 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[run.Tick.UTC()] = true
	return nil
}

// missing counts the ticks that were not completed, but for those that are recorded as skipped.
func (c *completions) missing(r *replica, first, last time.Time) (lost, skipped int) {
	for tick := first; tick.Before(last); tick = tick.Add(3 * time.Second) {
		c.mu.Lock()
		done := c.of[tick.UTC()]
		c.mu.Unlock()
		switch {
		case done: // one that could not say so is completed once more
		case r.w.recordOf(r, tick).Outcome == outcomeSkipped:
			skipped++
		default:
			lost++
		}
	}
	return lost, skipped
}
