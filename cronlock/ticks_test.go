package cronlock

import (
	"context"
	"testing"
	"time"
)

// Each tick runs on one replica, with and without hosts, whatever their clocks.
func TestEachTickOnce(t *testing.T) {
	for name, plans := range map[string][]plan{
		"engine": {{}, {}, {}},
		"hosts":  {{host: true}, {host: true}, {host: true}},
		"mixed":  {{host: true}, {}},
		"skewed": {{host: true}, {host: true, ahead: 350 * time.Millisecond}, {host: true, ahead: -5 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 300*time.Millisecond, func(t *testing.T, w *world) {
				for i, p := range plans {
					p.schedule = Every(time.Second)
					w.replica(string(rune('a'+i)), p)
				}
				till(2 * time.Minute)
				runs := w.ran()
				w.want(ticks(runs[0].Tick, time.Second, len(runs))...)
				if n := len(runs); n < 119 || n > 121 {
					t.Errorf("%d runs in two minutes", n)
				}
			})
		})
	}
}

// A tick that was started and not completed is started again, before later ones, as often as AtLeastOnce says.
func TestAtLeastOnce(t *testing.T) {
	bubble(t, 30*time.Second, func(t *testing.T, w *world) {
		var first *replica
		hang := func(ctx context.Context) error {
			if r, _ := FromContext(ctx); r.Attempt == 1 && r.Tick.Equal(at(time.Minute)) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		all := w.replicas(3, plan{work: hang, job: []JobOption{AtLeastOnce(3)}})
		till(5*time.Minute + 10*time.Second)
		for _, r := range all {
			if r.running.Load() > 0 {
				first = r
			}
		}
		first.crash()
		till(7*time.Minute + 30*time.Second)
		w.want(at(0), at(time.Minute), at(time.Minute), at(5*time.Minute), at(6*time.Minute), at(7*time.Minute))
		if runs := w.ran(); runs[2].Attempt != 2 {
			t.Errorf("the second start of the tick is attempt %d", runs[2].Attempt)
		}
	})
}
