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

const (
	recordFor   = 30 * time.Second       // how long the write of a completion is tried
	recordPause = 250 * time.Millisecond // between two tries
)

// run runs the handler under its leases and settles what becomes of them. A panic passes through untouched,
// because asynq tells where it came from by the stack above its own recover.
func (d *delivery) run(ctx context.Context, h *hold, next asynq.Handler) error {
	defer h.end()
	settled := false
	defer func() {
		if !settled {
			h.release(ctx)
		}
	}()
	run, done := h.context(ctx, d.identity)
	defer done()
	err := next.ProcessTask(run, d.task)
	settled = true

	if err == nil || errors.Is(err, asynq.RevokeTask) { // a revoked task is not to be run again either
		if cerr := d.complete(ctx, h); cerr != nil && err == nil {
			err = cerr
		}
		return err
	}
	if loss := h.lost(); loss != nil {
		err = fmt.Errorf("queuelock: %w; the handler: %w", loss, err)
	}
	h.release(ctx)
	return err
}

// complete records the task as done, with the release of its lease. The entity is released at the same time: the work
// on it is over, whatever becomes of the record.
//
// A record that a later holder refuses is an error: that one decides. A record that could not be written is
// none, since asynq would then run again what has just been done.
func (d *delivery) complete(ctx context.Context, h *hold) error {
	until := time.Now().Add(recordFor)
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && deadline.Before(until) {
		until = deadline.Add(-time.Second) // when it comes, asynq takes the task for failed
	}
	result := []byte(time.Now().UTC().Format(time.RFC3339))
	var err error
	var recorded sync.WaitGroup
	recorded.Go(func() { err = h.task.Complete(ctx, result) })
	if h.entity != nil {
		h.entity.Release(ctx) // as in release
	}
	recorded.Wait()
	for errors.Is(err, core.ErrUnavailable) && time.Now().Add(recordPause).Before(until) {
		time.Sleep(recordPause)
		err = h.task.Complete(ctx, result)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, core.ErrLost):
		d.event(ctx, EventRefused)
		return fmt.Errorf("queuelock: the handler succeeded, but its completion was refused: another delivery of the task has begun, which decides, or too many lock nodes forgot whether one has: %w", err)
	}
	d.event(ctx, EventUnrecorded)
	d.r.conf.logger.Error("queuelock: the handler succeeded, but its completion could not be recorded: should asynq deliver the task again, it runs again",
		d.attrs(ctx, "error", err)...)
	return nil
}
