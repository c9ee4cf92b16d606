package queuelock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// doneWork returns the error of package fence that the work of ctx is recorded as done.
func doneWork(ctx context.Context) error {
	work, _ := core.Work(ctx)
	return &core.OpError{Op: core.OpOnce, Key: work, Err: core.ErrDone, Record: &core.Record{}}
}

// staleToken is the error of package fence that a greater fencing token was seen.
var staleToken = &core.OpError{Op: core.OpCheck, Key: "k", Err: core.ErrLost, Reason: core.LossStale}

// worksOf runs the tasks, and returns the identities of their work in the order of the runs.
func (r *rig) worksOf(enqueue func()) (works []string) {
	r.serve(setup{opts: []Option{field("order")}}, func(ctx context.Context, _ *asynq.Task) error {
		return r.ledger.run(taskID(ctx), func() error {
			work, _ := core.Work(ctx)
			works = append(works, work)
			if retried, _ := asynq.GetRetryCount(ctx); retried == 0 {
				return errors.New("once more")
			}
			return nil
		})
	})
	enqueue()
	r.pass(10 * time.Minute)
	return works
}

// The work of a task is the same in each of its deliveries, and has the prefix, the identity and the type.
func TestWorkOfATask(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		works := r.worksOf(func() { r.enqueue(order(1), ID("t")) })
		identity := core.Key("queue", "task", theID)
		want := "lockkit:{" + core.Key(identity, "task") + "}"
		if len(works) != 2 || works[0] != want || works[1] != want {
			t.Errorf("works %q, want %q twice", works, want)
		}
	})
}

// A task with a foreign id names no work, because another task may reuse the id.
func TestWorkOfAForeignID(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		works := r.worksOf(func() { r.enqueue(order(1), asynq.TaskID("report:daily")) })
		if len(works) != 2 || works[0] != "" || works[1] != "" {
			t.Errorf("works %q, want none", works)
		}
	})
}

// Two types of task with the same ID are two works, although they are one task.
func TestWorkHasTheType(t *testing.T) {
	t.Parallel()
	l := &core.Locker{}
	work := func(taskType string) string {
		d := &delivery{Middleware: &Middleware{locker: l}, recordsCompletion: true, keys: []string{"identity"}}
		d.task = asynq.NewTask(taskType, nil)
		work, _ := core.Work(d.withWork(t.Context()))
		return work
	}
	if work("charge") == work("ship") || work("charge") == "" {
		t.Errorf("charge is %q, ship is %q", work("charge"), work("ship"))
	}
}

// A task whose work the database has recorded is done: it is recorded as completed, and not run again.
func TestWorkIsDoneInTheDatabase(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, r.does(func(ctx context.Context, _ int) error { return doneWork(ctx) }))
		info := r.enqueue(order(1), ID("t"))
		r.pass(time.Minute)
		r.enqueue(order(1), ID("t"))
		r.pass(10 * time.Minute)
		if r.state(info) != "gone" || r.ledger.runs[info.ID] != 1 || r.count(EventDuplicate) != 1 {
			t.Errorf("%s, %+v, %v", r.state(info), &r.ledger, r.events.Counts())
		}
	})
}

// A record of other work is an error like any other: asynq counts a retry.
func TestOtherWorkIsDoneInTheDatabase(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var user told
		r.serve(setup{adjust: user.adjust, opts: []Option{field("order")}}, r.does(func(ctx context.Context, run int) error {
			if run == 1 {
				return doneWork(r.locks.WithWork(ctx, "member", "1"))
			}
			return nil
		}))
		info := r.enqueue(order(1), ID("t"))
		r.pass(10 * time.Minute)
		if len(user.handled) != 1 || r.ledger.runs[info.ID] != 2 {
			t.Errorf("%+v, %+v", &user, &r.ledger)
		}
	})
}

// A handler whose token a store has refused is run again, under a greater token, and no retry is counted.
func TestStaleTokenBurnsNoRetry(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var user told
		var tokens []uint64
		r.serve(setup{adjust: user.adjust, opts: []Option{field("order")}}, r.does(func(ctx context.Context, run int) error {
			held, _ := FromContext(ctx)
			tokens = append(tokens, held.FencingToken)
			if retried, _ := asynq.GetRetryCount(ctx); retried != 0 {
				t.Errorf("run %d has burnt %d retries", run, retried)
			}
			if run <= 3 {
				return staleToken
			}
			return nil
		}))
		info := r.enqueue(order(1), ID("t"), asynq.MaxRetry(1))
		r.pass(10 * time.Minute)
		if r.state(info) != "gone" || r.count(EventStale) != 3 || len(user.handled) != 0 {
			t.Errorf("%s, %v, %+v", r.state(info), r.events.Counts(), &user)
		}
		for i := range tokens[1:] {
			if tokens[i+1] <= tokens[i] {
				t.Errorf("tokens %d", tokens)
			}
		}
	})
}

// On its last attempt such a task is archived, with the reason.
func TestStaleTokenOnTheLastAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, r.does(func(context.Context, int) error { return staleToken }))
		info := r.enqueue(order(1), ID("t"), asynq.MaxRetry(0))
		r.pass(10 * time.Minute)
		got := must(r.inspector.GetTaskInfo(info.Queue, info.ID))
		if got.State != asynq.TaskStateArchived || !strings.Contains(got.LastErr, "stale") ||
			r.count(EventStale) != 1 || r.count(EventArchived) != 1 {
			t.Errorf("%s, %q, %v", got.State, got.LastErr, r.events.Counts())
		}
	})
}
