package queuelock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A last attempt that asynq archives without having run is told of, whatever kept it from running.
func TestArchivedUnrunIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []Option
		spoil func(r *rig, process *locktest.Locker, enqueue func())
	}{
		"locker closed before the server": {nil, func(r *rig, process *locktest.Locker, enqueue func()) {
			if err := process.Close(r.t.Context()); err != nil {
				r.t.Fatal(err)
			}
			enqueue()
		}},
		"locks out of reach at the second key": {[]Option{WithConflict(Skip)}, func(_ *rig, process *locktest.Locker, enqueue func()) {
			process.Link.OnRequest(func(cmd redis.Cmder) testutil.Action {
				return testutil.Action{DropRequest: script(cmd, "", core.Key("order", "1"))}
			})
			enqueue()
		}},
		"own lease lost while waiting": {nil, func(r *rig, _ *locktest.Locker, enqueue func()) {
			back := r.take(1)
			enqueue()
			r.events.UntilRunning(r.t, core.OpAcquire, 1)
			r.pass(time.Second)
			r.steal(core.Key("queue", "task", "default", "t"))
			r.pass(5 * time.Second) // a renewal
			back()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				process := r.locks.Replica()
				r.serve(setup{locker: process.Locker, opts: append(c.opts, field("order"))}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
				var info *asynq.TaskInfo
				c.spoil(r, process, func() {
					info = r.enqueue(order(1), asynq.TaskID("t"), asynq.MaxRetry(0), asynq.Timeout(time.Minute))
				})
				r.pass(2 * time.Minute)
				got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
				if err != nil || got.State != asynq.TaskStateArchived || strings.Contains(got.LastErr, "to be delivered again") {
					t.Errorf("%+v, %v", got, err)
				}
				if r.count(EventArchived) != 1 || r.logs.count("ERROR queuelock: a task could not be run on its last attempt") != 1 {
					t.Errorf("not said: %v\n%s", r.events.Counts(), &r.logs)
				}
			})
		})
	}
}
