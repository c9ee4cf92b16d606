package leader_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/testutil"
)

var _ gocron.Elector = (*leader.Elector)(nil)

// An Elector can be passed to gocron: one process runs the jobs, and another process when it has resigned. If a process
// does not lead, Enter in a task is refused.
func TestGocron(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		ran, refused := map[*candidate]*atomic.Int32{l: {}, f: {}}, make(chan error, 1)
		time.Sleep(137 * time.Millisecond) // if gocron is started at the very instant of a tick, it runs the tick twice

		schedule := func(c *candidate, def gocron.JobDefinition, opts ...gocron.SchedulerOption) {
			s, err := gocron.NewScheduler(opts...)
			if err != nil {
				w.Fatal(err)
			}
			w.Cleanup(func() { s.Shutdown() })
			if _, err := s.NewJob(def, gocron.NewTask(func(ctx context.Context) {
				work, leave, err := c.Enter(ctx)
				if err != nil {
					refused <- err
					return
				}
				defer leave()
				if ran[c].Add(1); work.Err() != nil {
					w.Error("it runs without a term")
				}
			})); err != nil {
				w.Fatal(err)
			}
			s.Start()
		}

		for c := range ran {
			schedule(c, gocron.CronJob("* * * * * *", true), gocron.WithDistributedElector(c))
		}
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if n := ran[l].Load(); n < 10 || n > 11 || ran[f].Load() != 0 {
			w.Errorf("%d runs on the leader, %d on the follower", n, ran[f].Load())
		}

		l.Resign()
		before := ran[l].Load()
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if n := ran[f].Load(); n < 9 || ran[l].Load() != before {
			w.Errorf("%d runs on the next leader, %d on the one that resigned", n, ran[l].Load()-before)
		}

		schedule(l, gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()))
		isErr(w.T, "the task", testutil.Receive(w.T, refused), leader.ErrNotLeader)
	})
}
