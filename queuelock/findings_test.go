package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// Schedules under which tasks are easily lost.

// dropping runs work under the key, or drops the task if another task holds the key. docs/recipes.md shows such a
// handler.
func dropping(ctx context.Context, locker *core.Locker, key string, work func(context.Context) error) error {
	run, _ := FromContext(ctx)
	err := locker.TryDo(ctx, key, work, core.Note(run.Identity))
	if errors.Is(err, core.ErrHeld) {
		if now, _ := locker.Inspect(ctx, key); now.Holder != nil && now.Holder.Note != run.Identity {
			return nil
		}
	}
	return err
}

// A task whose handler failed while the locks were unreachable may meet its own lease. It is not dropped because of
// that. A task that meets the lease of another task is dropped.
func TestDropMeetsItsOwnLease(t *testing.T) {
	const away = 900 * time.Millisecond
	bubble(t, func(t *testing.T, r *rig) {
		l := r.locker()
		again := func(cfg *asynq.Config) {
			cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
			cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval = 50*time.Millisecond, 50*time.Millisecond
		}
		work := r.does(func(_ context.Context, run int) error {
			if run > 1 {
				time.Sleep(20 * time.Second)
				return nil
			}
			time.AfterFunc(away, r.hang())
			return errors.New("failed")
		})

		r.serve(setup{adjust: again}, func(ctx context.Context, task *asynq.Task) error {
			return dropping(ctx, l, "report", func(ctx context.Context) error { return work(ctx, task) })
		})

		info := r.enqueue(order(1))
		r.pass(10 * time.Second)
		other := r.enqueue(order(1))
		r.pass(time.Minute)
		if r.ledger.done[info.ID] != 1 || r.ledger.runs[other.ID] > 0 || r.state(other) != "gone" {
			t.Errorf("%+v, %s, %s", &r.ledger, r.state(info), r.state(other))
		}
	})
}

// asynq sets its unique lock before it finds that an id is taken, and leaves the lock. So a Scheduler's task must not
// have one: Register refuses a task that was made with asynq.Unique.
func TestTickOfAUniqueTask(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		err := r.idleReplica().Register("entry", "@every 30s", asynq.NewTask("task", nil, asynq.Unique(time.Hour)))
		if err == nil || !strings.Contains(err.Error(), "asynq.NewTask was given asynq.Unique") {
			t.Errorf("Register: %v", err)
		}
		r.pass(3 * half)
		if n := len(r.pending()); n != 0 {
			t.Errorf("%d tasks were enqueued", n)
		}
	})
}

// Three servers, each near another node, take tasks of one key at the same instant, so that their votes are split. Some
// servers drop their tasks, but one task of each key runs.
func TestDropWhenVotesAreSplit(t *testing.T) {
	const between = 60 * time.Millisecond
	bubble(t, func(t *testing.T, r *rig) {
		const keys = 20
		for site := range 3 {
			locks := r.locks.Replica(core.WithClockWindow(500*time.Millisecond), core.TTL(10*time.Second))
			locks.Link.OnRequest(r.far(site, between))
			adjust := func(cfg *asynq.Config) {
				cfg.Queues, cfg.Concurrency = map[string]int{fmt.Sprint("site", site): 1}, keys
				cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Duration(1+4*site) * time.Second }
			}
			r.serve(setup{adjust: adjust}, func(ctx context.Context, task *asynq.Task) error {
				key := "key " + string(task.Payload())
				return dropping(ctx, locks.Locker, key, func(context.Context) error {
					return r.ledger.run(key, func() error { time.Sleep(time.Second); return nil })
				})
			})
		}

		r.pass(3 * time.Second)
		for i := range keys {
			for site := range 3 {
				r.enqueue(asynq.NewTask("task", fmt.Append(nil, i)), asynq.Queue(fmt.Sprint("site", site)))
			}
		}

		r.pass(3 * time.Minute)
		if len(r.ledger.done) != keys || r.ledger.overlaps > 0 {
			t.Errorf("%d of %d keys had a run, %d overlaps", len(r.ledger.done), keys, r.ledger.overlaps)
		}
	})
}

// far delays the requests of a server at a site to the nodes of other sites.
func (r *rig) far(site int, d time.Duration) func(redis.Cmder) testutil.Action {
	turn := -1
	var mu sync.Mutex
	return func(cmd redis.Cmder) testutil.Action {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return testutil.Action{}
		}
		mu.Lock()
		defer mu.Unlock()
		if turn = (turn + 1) % 3; turn == site { // a round asks each node once
			return testutil.Action{}
		}
		return testutil.Action{Delay: d}
	}
}
