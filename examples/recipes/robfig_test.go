package recipes

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// Three replicas with a scheduler of robfig/cron each run each tick once.
func TestRobfigRunsEachTickOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t)
		var mu sync.Mutex
		runs := map[time.Time]int{}
		for range 3 {
			service, err := cronlock.New(l.Replica().Locker, "billing")
			if err != nil {
				t.Fatal(err)
			}
			scheduler := cron.New(cron.WithLocation(time.UTC))
			err = AddToRobfig(t.Context(), scheduler, service, "invoices", "* * * * *", func(ctx context.Context) error {
				run, _ := cronlock.FromContext(ctx)
				mu.Lock()
				defer mu.Unlock()
				runs[run.Tick]++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			scheduler.Start()
			defer service.Close(context.Background())
			defer scheduler.Stop()
		}

		time.Sleep(10*time.Minute + 30*time.Second)
		mu.Lock()
		defer mu.Unlock()
		for tick, n := range runs {
			if n != 1 {
				t.Errorf("tick %v ran %d times", tick, n)
			}
		}
		if len(runs) < 10 {
			t.Errorf("%d ticks ran", len(runs))
		}
	})
}
