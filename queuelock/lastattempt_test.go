package queuelock

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// hide has the nodes lose all requests that name the key of an order, until back is called.
func (r *rig) hide() (back func()) {
	var seen atomic.Bool
	for _, n := range r.nodes {
		n.OnRequest(func(args []string) testutil.Action {
			return testutil.Action{DropRequest: !seen.Load() && strings.Contains(strings.Join(args, " "), "r:5:order")}
		})
	}
	return func() { seen.Store(true) }
}

// A last attempt waits for locks that are out of reach, or were lost, for as long as its deadline lets it, also where it is
// dropped if its key is held. If that is not long enough, asynq archives it, and that is said, even if ErrorHandler has
// heard of locks out of reach a moment ago.
func TestLastAttemptWhateverIsMissing(t *testing.T) {
	const timeout = 2 * time.Minute
	for name, c := range map[string]struct {
		opts []Option
		miss func(r *rig, srv *server) (back func())
	}{
		"Skip, out of reach": {[]Option{field("order"), WithConflict(Skip)}, func(r *rig, _ *server) func() { return r.hide() }},
		"Wait, out of reach": {[]Option{field("order")}, func(r *rig, _ *server) func() { return r.hide() }},
		"its own lease is lost": {[]Option{field("order")}, func(r *rig, _ *server) func() {
			free := r.take(1)
			r.enqueue(order(1), asynq.TaskID("t"), asynq.MaxRetry(0), asynq.Timeout(timeout))
			r.events.UntilRunning(r.t, core.OpAcquire, 1)
			r.pass(time.Second)
			r.steal(core.Key("queue", "task", "default", "t"))()
			r.pass(5 * time.Second) // a renewal
			return free
		}},
		"Locker closed": {[]Option{field("order")}, func(r *rig, srv *server) func() {
			if err := srv.locker.Close(r.t.Context()); err != nil {
				r.t.Error(err)
			}
			return nil
		}},
	} {
		for _, soon := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", soon back", false: ""}[soon], func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					srv := r.serve(setup{opts: c.opts}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
					back := c.miss(r, srv)
					if back == nil && soon {
						t.Skip("for good")
					}
					if info, err := r.inspector.GetTaskInfo("default", "t"); info == nil || err != nil {
						r.enqueue(order(1), asynq.TaskID("t"), asynq.MaxRetry(0), asynq.Timeout(timeout))
					}
					r.pass(30 * time.Second)
					if soon {
						back()
					}
					r.pass(timeout)
					archived, told := r.count(EventArchived), r.logs.count("ERROR queuelock: a task could not be run")
					if soon && (r.ledger.done["t"] != 1 || archived+told > 0) || !soon && (len(r.ledger.runs) > 0 || archived != 1 || told != 1) {
						t.Errorf("%+v, %v\n%s", &r.ledger, r.events.Counts(), &r.logs)
					}
					if back != nil {
						back()
					}
				})
			})
		}
	}
}
