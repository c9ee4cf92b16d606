package leader_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/cronlock/leader"
)

var _ gocron.Elector = (*leader.Elector)(nil)

// gocron takes an Elector: one process runs its jobs, and the next one when it resigns.
func TestGocron(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		ran := map[*candidate]*atomic.Int32{l: {}, f: {}}
		time.Sleep(137 * time.Millisecond) // gocron runs a tick twice at whose very instant it is started
		for c, n := range ran {
			s, err := gocron.NewScheduler(gocron.WithDistributedElector(c))
			if err != nil {
				w.Fatal(err)
			}
			w.Cleanup(func() { s.Shutdown() })
			if _, err := s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func(ctx context.Context) {
				_, leave, err := c.Enter(ctx)
				isErr(w.T, "Enter of a task", err, nil)
				defer leave()
				n.Add(1)
			})); err != nil {
				w.Fatal(err)
			}
			s.Start()
		}
		for _, leads := range []*candidate{l, f} {
			before := ran[f].Load() + ran[l].Load() - ran[leads].Load()
			time.Sleep(10*time.Second + 500*time.Millisecond)
			if n, other := ran[leads].Load(), ran[f].Load()+ran[l].Load()-ran[leads].Load(); n < 9 || n > 11 || other != before {
				w.Errorf("%d runs on %s, %d on the other, which had %d", n, leads.name, other, before)
			}
			leads.Resign()
		}
	})
}
