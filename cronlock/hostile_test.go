package cronlock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A claim in which an observer panics leaves nothing behind: neither its turn among those of the jobs, nor the lease, nor
// what Close waits for.
func TestObserverPanicsInAClaim(t *testing.T) {
	for name, kind := range map[string]core.OpKind{"acquire": core.OpAcquire, "hold": core.OpHold, "release": core.OpRelease} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
				var left atomic.Int32
				left.Store(atOnce + 1)
				observer := core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
					if op.Kind == kind && left.Add(-1) >= 0 {
						panic("observer")
					}
					return ctx, nil
				}}
				r := w.replica("a", plan{schedule: Every(10 * time.Second), core: []core.Option{core.WithObserver(observer)}})
				till(15 * time.Minute)
				runs := len(w.ran())
				till(16 * time.Minute)
				if n := len(w.ran()) - runs; n < 5 || left.Load() > 0 {
					t.Errorf("%d runs in the last minute, after all panics but %d", n, left.Load())
				}
				r.end()
				if n := len(r.service.turns); n > 0 || time.Since(at(16*time.Minute)) > time.Minute {
					t.Errorf("%d claims have their turn still, after %v", n, time.Since(at(16*time.Minute)))
				}
			})
		})
	}
}

// No run of a removed job starts, however long its claim has waited.
func TestRemoveWhileAClaimIsUnderWay(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T, w *world) {
		r := w.replica("a", plan{schedule: Every(10 * time.Minute)})
		till(5 * time.Minute)
		n := len(w.ran()) // of the tick before
		for range atOnce {
			r.service.turns <- struct{}{}
		}
		till(10*time.Minute + 10*time.Second)
		r.Remove()
		for range atOnce {
			<-r.service.turns
		}
		till(15 * time.Minute)
		if ran := w.ran(); len(ran) > n {
			t.Errorf("ran after Remove: %+v", ran[n:])
		}
	})
}
