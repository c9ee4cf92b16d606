package queuelock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// ends are what ends a handler's context, for a task with a timeout of 30s that has begun on srv.
var ends = map[string]func(r *rig, srv *process, info *asynq.TaskInfo){
	"timeout": func(r *rig, _ *process, _ *asynq.TaskInfo) { r.pass(30 * time.Second) },
	"cancellation": func(r *rig, _ *process, info *asynq.TaskInfo) {
		if err := r.inspector.CancelProcessing(info.ID); err != nil {
			r.t.Error(err)
		}
	},
	"shutdown": func(_ *rig, srv *process, _ *asynq.TaskInfo) { srv.Shutdown() },
	"lost lease": func(r *rig, _ *process, _ *asynq.TaskInfo) {
		back := r.hang()
		r.pass(5 * time.Second)
		back()
	},
}

// leaves is a handler whose first run for a task leaves when its context ends, as if all was well.
func (r *rig) leaves(ctx context.Context, _ *asynq.Task) error {
	return r.ledger.run(taskID(ctx), func() error {
		if r.ledger.count(&r.ledger.runs, taskID(ctx)) == 1 {
			<-ctx.Done()
		}
		return nil
	})
}

// Nil after the end of the context is said, whatever ended it, and counts as done.
func TestNilAfterCancel(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := setup{opts: []Option{field("order")}}
				srv := r.serve(s, r.leaves)
				info := r.enqueue(order(1), asynq.Timeout(30*time.Second))
				r.begun(info)
				end(r, srv, info)
				r.pass(time.Second)
				if r.count(EventNilAfterCancel) != 1 || r.logs.count("WARN queuelock: the handler returned nil after its context had ended: the task counts as done") != 1 {
					t.Errorf("%v\n%s", r.events.Counts(), &r.logs)
				}
				r.serve(s, r.leaves)
				r.pass(3 * time.Minute)
				if r.ledger.runs[info.ID] != 1 || r.state(info) != "gone" || r.ledger.overlaps > 0 || r.count(EventNilAfterCancel) != 1 {
					t.Errorf("%s, %+v, %v", r.state(info), &r.ledger, r.events.Counts())
				}
				if _, err := r.locker().TryAcquire(t.Context(), core.Key("queue", "task", info.ID)); !errors.Is(err, core.ErrDone) {
					t.Errorf("no record: %v", err)
				}
			})
		})
	}
}

// Nil in time is silent, and so is an error after the end of the context.
func TestNilInTimeIsSilent(t *testing.T) {
	for name, handler := range map[string]func(ctx context.Context) error{
		"nil in time":      func(context.Context) error { return nil },
		"an error in time": func(context.Context) error { return errors.New("failed") },
		"an error later":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
					return r.ledger.run(taskID(ctx), func() error { return handler(ctx) })
				})
				info := r.enqueue(order(1), asynq.Timeout(20*time.Second), asynq.MaxRetry(0))
				r.pass(time.Minute)
				if r.ledger.runs[info.ID] != 1 || r.count(EventNilAfterCancel) > 0 || r.logs.count("returned nil") > 0 {
					t.Errorf("%+v, %v\n%s", &r.ledger, r.events.Counts(), &r.logs)
				}
			})
		})
	}
}
