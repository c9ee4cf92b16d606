package cronlock

import (
	"context"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core"
)

// Each tick that fell due while nobody led is run by the next leader, and so is the one in whose run the leader was
// killed.
func TestTicksOfAGap(t *testing.T) {
	for name, policy := range map[string]JobOption{"at most once": AtMostOnce(), "at least once": AtLeastOnce(3)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				completed := map[time.Time]int{}
				_, all := w.members(3, "*/3 * * * * *", func(_ *member, ctx context.Context) error {
					run, _ := FromContext(ctx)
					select {
					case <-time.After(500 * time.Millisecond):
					case <-ctx.Done():
						return ctx.Err()
					}
					w.mu.Lock()
					defer w.mu.Unlock()
					completed[run.Tick.UTC()]++
					return nil
				}, policy)
				first := time.Now().Truncate(3 * time.Second).Add(3 * time.Second)
				for range 4 {
					time.Sleep(time.Until(time.Now().Truncate(3 * time.Second).Add(15*time.Second + 200*time.Millisecond)))
					old := atHead(all)[0]
					old.cable.Cut()
					time.Sleep(2 * ttl)
					old.cable.Mend()
				}
				last := time.Now()
				time.Sleep(time.Minute)
				lost, skipped := 0, 0
				for tick := first; tick.Before(last); tick = tick.Add(3 * time.Second) {
					switch rec := w.recordOf(all[0].replica, tick); {
					case completed[tick.UTC()] > 0: // one that was, and could not say so, is once more
					case rec.Outcome == outcomeSkipped:
						skipped++
					default:
						lost++
					}
				}
				// Under at most once, one in each run that was cut. The lease of a dead leader's run counts as a run.
				if most := map[string]int{"at most once": 4, "at least once": 0}[name]; lost > most || skipped > 4 {
					t.Errorf("%d ticks were not completed, %d skipped: %v", lost, skipped, w.failed())
				}
			})
		})
	}
}

// A Locker that keeps keys for a while after their release does not keep a job from its next tick.
func TestMinHold(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		r := w.replicaOn("0", w.locks(core.MinHold(5*time.Second)))
		r.job(gocron.CronJob(secondly, true), nil)
		r.sched.Start()
		time.Sleep(12*time.Second + 500*time.Millisecond)
		if n := len(w.ran()); n != 12 {
			t.Errorf("%d runs of 12 ticks: %v", n, w.failed())
		}
	})
}
