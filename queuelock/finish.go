package queuelock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// settle ends the leases of a handler that has returned err, and returns what asynq is told.
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
	if !isCooldown {
		d.transition(onFailure)
		held.release(ctx)
		return err
	}

	if d.lastAttempt {
		d.transition(onLastCooldown)
	} else {
		d.transition(onCooldown)
	}
	held[1].Release(ctx, core.Cooldown(cooldown.d))
	held[0].Release(ctx)
	return d.conclude(ctx, err)
}

// complete records the task as done, with the release of the lease of its identity, if that is to be remembered. The lease
// of the key is released at the same time: the work on it is over, whatever becomes of the record.
//
// The error is that of a record that is rejected, because a later holder decides. A record that could not be written is no
// error, since asynq would then run again what has just been done.
func (d *delivery) complete(ctx context.Context, held leases) (err error) {
	var recording sync.WaitGroup
	err = errUnrecorded // the error if a callback ends the goroutine
	recording.Go(func() { err = d.recordCompletion(ctx, held[0]) })
	held[1].Release(ctx)
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

// recordFor is how long the write of a completion is tried.
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

// shortened returns so much of the type of a task as its record keeps.
func shortType(taskType string) string { return taskType[:min(len(taskType), 60)] }
