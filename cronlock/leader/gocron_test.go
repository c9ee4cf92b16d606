package leader_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil"
)

var _ gocron.Elector = (*leader.Elector)(nil)

// task makes a task whose run enters the term.
func (c *candidate) task(f func(ctx context.Context) error) gocron.Task {
	return gocron.NewTask(func(ctx context.Context) error {
		work, leave, err := c.Enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		return f(work)
	})
}

// schedule starts a scheduler with a job.
func (w *world) schedule(def gocron.JobDefinition, task gocron.Task, job gocron.JobOption, opts ...gocron.SchedulerOption) {
	w.Helper()
	s, err := gocron.NewScheduler(opts...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { s.Shutdown() })
	if _, err := s.NewJob(def, task, job); err != nil {
		w.Fatal(err)
	}
	s.Start()
}

// gocron takes an Elector: one process runs its jobs, and the next one when it resigns.
func TestGocron(t *testing.T) {
	bubble(t, 3, func(w *world) {
		l, f := w.pair()
		ran := map[*candidate]*atomic.Int32{l: {}, f: {}}
		time.Sleep(137 * time.Millisecond) // gocron runs a tick twice at whose very instant it is started
		for c, n := range ran {
			w.schedule(gocron.CronJob("* * * * * *", true), c.task(func(ctx context.Context) error {
				n.Add(1)
				return c.IsLeader(ctx)
			}), gocron.WithName("job"), gocron.WithDistributedElector(c))
		}
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if n := ran[l].Load(); n < 10 || n > 11 || ran[f].Load() != 0 {
			w.Errorf("%d runs on the leader, %d on the follower", n, ran[f].Load())
		}
		l.mustResign(w.T)
		before := ran[l].Load()
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if n := ran[f].Load(); n < 9 || ran[l].Load() != before {
			w.Errorf("%d runs on the next leader, %d on the one that resigned", n, ran[l].Load()-before)
		}
	})
}

// A task whose leadership goes after gocron has asked is refused.
func TestGocronTaskOfAFollower(t *testing.T) {
	bubble(t, 3, func(w *world) {
		_, f := w.pair()
		errs := make(chan error, 1)
		w.schedule(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), f.task(func(context.Context) error {
			return errors.New("a run without leadership")
		}), gocron.WithEventListeners(gocron.AfterJobRuns(func(uuid.UUID, string) { errs <- nil }),
			gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { errs <- err })))
		isErr(w.T, "the task", testutil.Receive(w.T, errs), leader.ErrNotLeader)
	})
}
