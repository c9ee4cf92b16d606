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

// Schedules that lost tasks before, each with its outcome now.

// dropping is a handler that drops its task if another one runs under the key, as the package document has it.
func dropping(locker func(ctx context.Context) *core.Locker, key string, work func(context.Context) error) asynq.HandlerFunc {
	return func(ctx context.Context, _ *asynq.Task) error {
		run, _ := FromContext(ctx)
		err := locker(ctx).TryDo(ctx, key, work, core.Note(run.Identity))
		if errors.Is(err, core.ErrHeld) {
			if now, _ := locker(ctx).Inspect(ctx, key); now.Holder != nil && now.Holder.Note != run.Identity {
				return nil
			}
		}
		return err
	}
}

// A task whose handler failed while the locks were unreachable meets the lease that it has left itself. It is not dropped
// because of that; a task that meets another one is.
func TestDropMeetsItsOwnLease(t *testing.T) {
	for _, away := range []time.Duration{50 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second} {
		t.Run(away.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				l := r.locker()
				again := func(cfg *asynq.Config) {
					cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
					cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval = 50*time.Millisecond, 50*time.Millisecond
				}
				r.serve(setup{adjust: again}, dropping(func(context.Context) *core.Locker { return l }, "report", func(ctx context.Context) error {
					return r.ledger.run(taskID(ctx), func() error {
						if r.ledger.count(&r.ledger.runs, taskID(ctx)) > 1 {
							time.Sleep(20 * time.Second)
							return nil
						}
						time.AfterFunc(away, r.hang())
						return errors.New("failed")
					})
				}))
				info := r.enqueue(order(1))
				r.pass(10 * time.Second)
				other := r.enqueue(order(1))
				r.pass(time.Minute)
				if r.ledger.done[info.ID] != 1 || r.ledger.runs[other.ID] > 0 || r.state(other) != "gone" {
					t.Errorf("%+v, %s, %s", &r.ledger, r.state(info), r.state(other))
				}
			})
		})
	}
}

// asynq sets its unique lock before it finds an id taken, and leaves it. So a task of a Scheduler must not have one: as an
// option of Register it is refused, and of NewTask, which nobody can read, each tick that it costs is told. Without it, a tick
// whose answer was lost costs no other.
func TestTickOfAUniqueTask(t *testing.T) {
	t.Run("unique", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.untilNext(half, time.Second)
			for range 2 {
				if err := r.idleReplica().Register("entry", "@every 30s", asynq.NewTask("task", nil, asynq.Unique(time.Hour))); err != nil {
					t.Fatal(err)
				}
			}
			r.pass(3 * half)
			if n := r.count(EventTickMissed); len(r.pending()) != 1 || n != 5 || r.logs.count("asynq.NewTask was given asynq.Unique") != n {
				t.Errorf("%v, %v\n%s", r.pending(), r.events.Counts(), &r.logs)
			}
		})
	})
	t.Run("lost answer", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.serve(setup{}, r.note)
			at := r.untilNext(half, time.Second)
			var lost sync.Once
			r.replica(0, half).onEnqueue(func() (a testutil.Action) { lost.Do(func() { a.DropReply = true }); return a })
			r.pass(5 * half)
			r.wantOnce(ticksFrom(at.Add(-1), half, 5))
			if r.count(EventTickMissed) > 0 {
				t.Error(r.events.Counts())
			}
		})
	})
}

// Three servers, each near another node, take tasks of one key at the same instant, and their votes are split. Whichever drop
// theirs, one runs it.
func TestDropWhenVotesAreSplit(t *testing.T) {
	for _, between := range []time.Duration{60 * time.Millisecond, 150 * time.Millisecond} {
		t.Run(between.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				const keys = 20
				type lockerKey struct{}
				for site := range 3 {
					locks := r.locks.Replica(core.WithClockWindow(500*time.Millisecond), core.TTL(10*time.Second))
					locks.Link.OnRequest(r.far(site, between))
					adjust := func(cfg *asynq.Config) {
						cfg.Queues, cfg.Concurrency = map[string]int{fmt.Sprint("site", site): 1}, keys
						cfg.BaseContext = func() context.Context { return context.WithValue(context.Background(), lockerKey{}, locks.Locker) }
						cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Duration(1+4*site) * time.Second }
					}
					of := func(ctx context.Context) *core.Locker { return ctx.Value(lockerKey{}).(*core.Locker) }
					r.serve(setup{adjust: adjust}, func(ctx context.Context, task *asynq.Task) error {
						key := "key " + string(task.Payload())
						return dropping(of, key, func(context.Context) error {
							return r.ledger.run(key, func() error { time.Sleep(time.Second); return nil })
						})(ctx, task)
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
		})
	}
}

// far delays what a server at a site asks of the nodes of others.
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

// A task waits in place while its server loses asynq's Redis, which to asynq looks as if the server had died. asynq's recoverer
// counts a retry of it, and archives a last attempt; the log says so.
func TestWaitingTaskWhoseServerLosesAsynq(t *testing.T) {
	for retries, want := range []string{"archived", "active"} {
		t.Run(want, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.take(1)
				s := setup{opts: []Option{field("order")}}
				first := r.serve(s, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
				info := r.enqueue(order(1), asynq.MaxRetry(retries))
				r.events.UntilRunning(t, core.OpAcquire, 1)
				first.link.Cut()
				r.serve(s, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
				r.pass(4 * time.Minute)
				got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
				if err != nil || got.State.String() != want || got.Retried != retries || got.LastErr != asynq.ErrLeaseExpired.Error() || len(r.ledger.runs) > 0 {
					t.Errorf("%+v, %v, %+v", got, err, &r.ledger)
				}
				if r.logs.count("INFO queuelock: asynq took a task back that waited: if its server has lost asynq's Redis, asynq's recoverer counts a retry") != 1 {
					t.Errorf("\n%s", &r.logs)
				}
			})
		})
	}
}
