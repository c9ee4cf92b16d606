package queuelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// settle ends the leases of a handler that has returned err, and returns what asynq is told.
func (d *delivery) settle(ctx context.Context, held leases, err error) error {
	if err == nil || errors.Is(err, asynq.RevokeTask) { // a revoked task is not to be run again either
		if refused := d.complete(ctx, held); err == nil {
			return refused
		}
		return err
	}
	if loss := cmp.Or(held[0].Lost(), held.innermost().Lost()); loss != nil {
		err = fmt.Errorf("queuelock: %w; the handler: %w", loss, err)
	}
	held.release(ctx)
	return err
}

// recordFor is how long the write of a completion is tried.
const recordFor = 30 * time.Second

// complete records the task as done, with the release of its lease. What it works on is released at the same time: the
// work on it is over, whatever becomes of the record.
//
// A record that a later holder refuses is an error: that one decides. A record that could not be written is
// none, since asynq would then run again what has just been done.
func (d *delivery) complete(ctx context.Context, held leases) error {
	patience := recordFor
	if ctx.Err() == nil {
		patience = min(patience, time.Until(d.until))
	}
	var err error
	var recorded sync.WaitGroup
	recorded.Go(func() {
		err = held[0].Complete(context.WithoutCancel(ctx), []byte(time.Now().UTC().Format(time.RFC3339)), core.RetryFor(patience))
	})
	held[1:].release(ctx) // not in the goroutine: others wait for it, and a request waits for the batch before it
	recorded.Wait()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, core.ErrLost):
		d.event(ctx, EventRefused)
		return fmt.Errorf("queuelock: the handler succeeded, but its completion was refused: another delivery of the task has begun, which decides, or too many lock nodes forgot whether one has: %w", err)
	}
	d.event(ctx, EventUnrecorded)
	d.log(ctx).Error("queuelock: the handler succeeded, but its completion could not be recorded: should asynq deliver the task again, it runs again", "error", err)
	return nil
}
