package queuelock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/faults"
)

var (
	// ErrEnqueued matches the error of Enqueue for a task that was enqueued before.
	ErrEnqueued = errors.New("already enqueued")
	// ErrCompleted matches the error of Enqueue for a task that is recorded as completed.
	ErrCompleted = errors.New("already completed")
)

// Enqueue enqueues a task unless one of the same identity was enqueued before or is recorded as completed, whatever their
// queues, and with WithSharedIdentity whatever their types. It is an error if neither that nor WithIdentity is set for the type. Producers make a
// Runner for it, with the same options as that of the servers:
//
//	ql, err := queuelock.New(locker, queuelock.WithSharedIdentity(queuelock.ByPayloadField("order_id")))
//	…
//	info, err := ql.Enqueue(ctx, client, asynq.NewTask("charge", payload), asynq.Queue("critical"))
//	if errors.Is(err, queuelock.ErrEnqueued) || errors.Is(err, queuelock.ErrCompleted) { … } // nothing to do
//
// With [ErrEnqueued] or [ErrCompleted] this call has enqueued nothing; but if asynq's Redis loses an answer, the task that
// is there already may be its own. With any other error the task may have been enqueued. To repeat the call is safe.
//
// The id of the task is made of its identity: the option asynq.TaskID is an error, and without effect if asynq.NewTask was
// given it. The key of the task ([WithKey]) is not made here: one of which none can be made is enqueued, and fails on a server
// (EventUnfit). With asynq.Unique a task that asynq takes for the same counts as enqueued. All other options of the task and of
// the call are asynq's. The package documentation says for how long a task counts as enqueued.
func (r *Runner) Enqueue(ctx context.Context, client *asynq.Client, t *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	var f faults.List
	f.Check(client == nil, "the client is nil")
	checkTask(&f, t, opts)
	if len(f) > 0 {
		return nil, f.Err("queuelock: not enqueued")
	}
	p := r.conf.of(t.Type())
	if p.identity == nil {
		return nil, fmt.Errorf("queuelock: not enqueued: nothing says which tasks of type %q are the same: give New the WithIdentity or WithSharedIdentity that the servers have", t.Type())
	}
	own, err := p.ownKey(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("queuelock: not enqueued: identity of the task: %w", err)
	}
	state, err := r.locker.Inspect(ctx, own)
	switch {
	case err != nil:
		return nil, fmt.Errorf("queuelock: not enqueued: %w", err)
	case state.Record != nil:
		return nil, fmt.Errorf("queuelock: not enqueued: %w at %s", ErrCompleted, state.Record.Result)
	}
	opts = append(slices.Clip(opts), asynq.TaskID(oncePrefix+own))
	name, _ := r.types.of(t.Type())
	call := []core.CallOption{core.Name(name), core.Retention(p.retention)}
	return enqueueOnce(ctx, r.locker, core.Key("queue", "enqueued", own), call, func(ctx context.Context) (*asynq.TaskInfo, error) {
		return enqueueNow(ctx, client, t, opts)
	})
}

// enqueueNow has asynq enqueue a task. Its errors do not say where they come from.
func enqueueNow(ctx context.Context, client *asynq.Client, t *asynq.Task, opts []asynq.Option) (*asynq.TaskInfo, error) {
	info, err := client.EnqueueContext(ctx, t, opts...)
	if err != nil {
		return nil, fmt.Errorf("asynq: %w", err)
	}
	return info, nil
}

// checkTask notes what is wrong with a task that is to be enqueued under an id of this package's.
func checkTask(f *faults.List, t *asynq.Task, opts []asynq.Option) {
	f.Check(t == nil, "the task is nil")
	f.Check(t != nil && t.Type() == "", "the task has no type")
	for _, o := range opts {
		f.Check(o == nil, "an option is nil")
		f.Check(o != nil && o.Type() == asynq.TaskIDOpt, "%v is among the options: the task gets an id of this package, so that it is enqueued once", o)
	}
}

// enqueueOnce enqueues a task unless key is recorded, and records that. The id of the task must be made of key: if a
// process dies before it could record what it has enqueued, the next one meets that in the queue, or, where it is
// completed and gone, the middleware knows the second task by its id or identity.
func enqueueOnce(ctx context.Context, l *core.Locker, key string, call []core.CallOption, enqueue func(context.Context) (*asynq.TaskInfo, error)) (*asynq.TaskInfo, error) {
	var info *asynq.TaskInfo
	var before error // what says that it was enqueued before
	err := l.Once(ctx, key, func(ctx context.Context) (err error) {
		info, err = enqueue(ctx)
		if errors.Is(err, asynq.ErrTaskIDConflict) || errors.Is(err, asynq.ErrDuplicateTask) {
			before, err = err, nil
		}
		return err
	}, call...)
	switch {
	case errors.Is(err, core.ErrDone): // which is about the record, not about the task
		return nil, fmt.Errorf("queuelock: %w, as is recorded under %q", ErrEnqueued, key)
	case info != nil && err != nil:
		l.Logger().Warn("queuelock: a task was enqueued, and that could not be recorded: it may be enqueued again, and is not run again if it is completed", "queue", info.Queue, "id", info.ID, "err", err)
		return info, nil
	case before != nil:
		return nil, fmt.Errorf("queuelock: %w: %w", ErrEnqueued, before)
	case err != nil:
		return nil, fmt.Errorf("queuelock: not enqueued, as far as is known: %w", err)
	}
	return info, nil
}
