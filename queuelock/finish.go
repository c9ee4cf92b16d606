package queuelock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/fenced"
)

// finish ends the leases of a handler that has returned err, and returns the result for asynq.
func (d *delivery) finish(ctx context.Context, held leases, err error) error {
	if err == nil || errors.Is(err, asynq.RevokeTask) { // a revoked task must not run again either
		d.transition(onSuccess)
		refusal := d.complete(ctx, held)
		if err == nil { // a revoked task stays revoked
			err = refusal
		}
		return d.conclude(ctx, err)
	}

	cooldown, isCooldown := errors.AsType[*cooldownError](err)
	if loss := held.lostError(); loss != nil {
		err = fmt.Errorf("queuelock: %w; the handler: %w", loss, err)
	}
	switch {
	case isCooldown:
		return d.coolDown(ctx, held, cooldown, err)

	// A later holder has been at work. The task is run again, under a lease with a greater token.
	case fenced.IsStale(err):
		d.report(ctx, EventStale)
		d.transition(d.onStale())

	default:
		d.transition(onFailure)
	}
	held.release(ctx)
	return d.conclude(ctx, err)
}

// onStale returns the trigger of a handler whose fencing token a store has refused.
func (d *delivery) onStale() trigger {
	if d.lastAttempt {
		return onLastStale
	}
	return onStale
}

// coolDown ends the leases of a handler that has returned Cooldown, and returns the result for asynq.
func (d *delivery) coolDown(ctx context.Context, held leases, cooldown *cooldownError, err error) error {
	if d.lastAttempt {
		d.transition(onLastCooldown)
	} else {
		d.transition(onCooldown)
	}

	// The cooldown is on the key. If the task has none, only the delay of its next delivery remains.
	held[1].release(ctx, core.Cooldown(cooldown.d))
	held[0].release(ctx)
	return d.conclude(ctx, err)
}

// complete records the task as done, unless its id is foreign, and releases its leases. The lease of the key is
// released at the same time: the work on the key is over, even if the record fails.
//
// complete returns an error if the nodes reject the record, because the later holder of the identity decides. A record
// that could not be written is no error, because after an error asynq would repeat the work.
func (d *delivery) complete(ctx context.Context, held leases) (err error) {
	var recording sync.WaitGroup
	err = errUnrecorded // the error if a callback ends the goroutine
	recording.Go(func() { err = d.recordCompletion(ctx, held[0].lock) })
	held[1].release(ctx)
	recording.Wait()

	if errors.Is(err, core.ErrLost) {
		d.transition(onRejected)
		return err
	}
	d.transition(onRecorded)
	if err != nil {
		d.report(ctx, EventUnrecorded)
		d.logger(ctx).Error("queuelock: the handler succeeded, but its completion could not be recorded: "+
			"should asynq deliver the task again, it runs again", "err", err)
	}
	return nil
}

var errUnrecorded = errors.New("a callback has ended the goroutine that was to record it")

// recordTimeout is how long the middleware tries to write a completion.
const recordTimeout = 30 * time.Second

// recordCompletion completes the lease of the identity, or releases it if the completion is not recorded.
func (d *delivery) recordCompletion(ctx context.Context, identity *core.Lease) error {
	if !d.recordsCompletion {
		identity.Release(ctx)
		return nil
	}

	// If the context has ended, asynq ignores the result, and the deadline does not matter.
	timeout := recordTimeout
	if ctx.Err() == nil {
		timeout = min(timeout, time.Until(d.giveUpAt))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()

	return identity.Complete(ctx, []byte(time.Now().UTC().Format(time.RFC3339)+" "+shortType(d.task.Type())))
}

// shortType returns the part of a task's type that its record has.
func shortType(taskType string) string { return taskType[:min(len(taskType), 60)] }
