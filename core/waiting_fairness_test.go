package core

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
)

// If six processes ask for one key again and again from the same moment on, no call waits for more than 200 ms. Six
// holds take 30 ms.
func TestNobodyIsOvertakenForLong(t *testing.T) {
	race.SkipSweep(t)
	onNodes(t, []int{1, 2, 3, 4, 5}, func(t *testing.T, w *world) {
		const processes, hold = 6, 5 * time.Millisecond
		end := time.Now().Add(400 * time.Millisecond)
		var mu sync.Mutex
		var longest time.Duration
		var all sync.WaitGroup
		for k := range processes {
			p := w.process()
			r := rand.New(rand.NewPCG(uint64(k), 7))
			for _, l := range p.links {
				l.Decide(func(wire.Op, coretest.Sent) coretest.Fate { // called with the link's lock
					mu.Lock()
					defer mu.Unlock()
					return coretest.Fate{Delay: time.Duration(50+r.IntN(150)) * time.Microsecond, ReplyDelay: time.Duration(50+r.IntN(150)) * time.Microsecond}
				})
			}

			all.Go(func() {
				for time.Now().Before(end) {
					at := time.Now()
					lease, err := p.Acquire(t.Context(), "k")
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					longest = max(longest, time.Since(at))
					mu.Unlock()
					time.Sleep(hold)
					lease.Release(context.Background())
				}
			})
		}

		all.Wait()
		if longest > 200*time.Millisecond {
			t.Errorf("somebody waited for %v", longest)
		}
	})
}
