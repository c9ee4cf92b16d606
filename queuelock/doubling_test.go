package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// once returns a fault that drops the first command of a kind.
func once(is func(redis.Cmder) bool) func(redis.Cmder) testutil.Action {
	var hit atomic.Bool
	return func(cmd redis.Cmder) testutil.Action {
		return testutil.Action{DropRequest: is(cmd) && hit.CompareAndSwap(false, true)}
	}
}

// If asynq fails to delete a set of tasks that it has aggregated, these tasks join the next set. A handler that runs
// each member by Once runs no member twice.
func TestMembersAggregatedTwice(t *testing.T) {
	for _, byOnce := range []bool{false, true} {
		bubbleOf(t, fmt.Sprintf("by Once %v", byOnce), func(t *testing.T, r *rig) {
			l, ran := r.locker(), map[string]int{}
			adjust := func(cfg *asynq.Config) {
				cfg.GroupGracePeriod, cfg.GroupMaxDelay, cfg.GroupMaxSize = 2*time.Second, 10*time.Second, 10
				cfg.GroupAggregator = asynq.GroupAggregatorFunc(func(_ string, tasks []*asynq.Task) *asynq.Task {
					var members []string
					for _, m := range tasks {
						members = append(members, string(m.Payload()))
					}
					return asynq.NewTask("task", []byte(strings.Join(members, ",")))
				})
			}

			srv := r.serve(setup{adjust: adjust, locker: l}, func(ctx context.Context, task *asynq.Task) error {
				for m := range strings.SplitSeq(string(task.Payload()), ",") {
					do := func(ctx context.Context, _ string, run func(context.Context) error) error { return run(ctx) }
					if byOnce {
						do = func(ctx context.Context, key string, run func(context.Context) error) error {
							return l.Once(ctx, key, run)
						}
					}
					err := do(ctx, core.Key("member", m), func(context.Context) error { ran[m]++; return nil })
					if err != nil && !errors.Is(err, core.ErrDone) {
						return err
					}
				}
				return nil
			})

			// This command deletes the set.
			srv.link.OnRequest(once(func(cmd redis.Cmder) bool {
				return strings.HasPrefix(cmd.Name(), "eval") && fmt.Sprint(cmd.Args()[2]) == "2" && strings.HasSuffix(fmt.Sprint(cmd.Args()[4]), ":aggregation_sets")
			}))

			r.enqueue(asynq.NewTask("task", []byte("a")), asynq.Group("g"))
			r.enqueue(asynq.NewTask("task", []byte("b")), asynq.Group("g"))
			r.pass(5 * time.Minute)
			for i := range 3 { // asynq looks at a group only when a member joins
				r.enqueue(asynq.NewTask("task", fmt.Append(nil, i)), asynq.Group("g"))
				r.pass(2 * time.Minute)
			}

			want := 2
			if byOnce {
				want = 1
			}
			if ran["a"] != want || ran["b"] != want || ran["0"] != 1 || ran["1"] != 1 || ran["2"] != 1 {
				t.Errorf("%v", ran)
			}
		})
	}
}
