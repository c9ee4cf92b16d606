package queuelock

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// A task that let its own key rest is not dropped because of that (Skip), however early it is delivered again.
func TestSkipKeepsWhatCools(t *testing.T) {
	const rest = time.Minute
	for name, c := range map[string]struct {
		opts  []asynq.Option
		early func(r *rig, srv *server, info *asynq.TaskInfo)
	}{
		"run by hand": {nil, func(r *rig, _ *server, info *asynq.TaskInfo) {
			r.pass(5 * time.Second)
			if err := r.inspector.RunTask(info.Queue, info.ID); err != nil {
				r.t.Fatal(err)
			}
		}},
		"shutdown":       {nil, func(_ *rig, srv *server, _ *asynq.TaskInfo) { srv.Shutdown() }},
		"timeout":        {[]asynq.Option{asynq.Timeout(2 * time.Second)}, func(*rig, *server, *asynq.TaskInfo) {}},
		"before its due": {nil, func(*rig, *server, *asynq.TaskInfo) {}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				setup := setup{opts: []Option{field("order"), WithConflict(Skip)}, adjust: func(cfg *asynq.Config) {
					cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
					cfg.ShutdownTimeout = time.Second
				}}
				handle := r.cools(rest, name == "timeout" || name == "shutdown")
				srv := r.serve(setup, handle)
				info := r.enqueue(order(1), append(c.opts, asynq.TaskID("cools"))...)
				r.begun(info)
				c.early(r, srv, info)
				r.serve(setup, handle)
				r.pass(20 * time.Second)
				if r.ledger.runs["cools"] != 1 {
					t.Errorf("runs while its key rests: %+v", &r.ledger)
				}
				r.enqueue(order(1), asynq.TaskID("other")) // is dropped
				r.pass(2 * time.Minute)
				if r.ledger.done["cools"] != 1 || r.ledger.runs["other"] != 0 || r.count(EventSkipped) != 1 {
					t.Errorf("%s, %+v, %v", r.state(info), &r.ledger, r.events.Counts())
				}
			})
		})
	}
}

// cools is a handler that has the task "cools" rest when it runs first: at once, or when its context ends.
func (r *rig) cools(rest time.Duration, late bool) asynq.HandlerFunc {
	return func(ctx context.Context, _ *asynq.Task) error {
		return r.ledger.run(taskID(ctx), func() error {
			if taskID(ctx) == "other" || r.ledger.count(&r.ledger.runs, "cools") > 1 {
				return nil
			}
			if late {
				<-ctx.Done()
			}
			return Cooldown(rest)
		})
	}
}
