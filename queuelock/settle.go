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
func (d *delivery) settle(ctx context.Context, held leases, err error) error {
	if err == nil || errors.Is(err, asynq.RevokeTask) { // a revoked task is not to be run again either
		if refused := d.complete(ctx, held); err == nil {
			return refused
		}
		return err
	}
	rest, err, cools := asksForRest(err)
	if loss := held.lost(); loss != nil {
		err = fmt.Errorf("queuelock: %w; the handler: %w", loss, err)
	}
	if cools {
		return d.cool(ctx, held, err, rest)
	}
	held.release(ctx)
	return err
}

var errNilAfterCancel = errors.New("queuelock: the handler returned nil after its context had ended, and is to run again (WithNilAfterCancel)")

// judge returns what is taken for the handler's error: nil that it returned after the end of its context may be one.
func (d *delivery) judge(ctx context.Context, run context.Context, err error) error {
	if err != nil || run.Err() == nil {
		return err
	}
	d.event(ctx, EventNilAfterCancel)
	log := d.log(ctx).With("cause", context.Cause(run))
	if d.nilAfterCancel == NotDone {
		log.Warn("queuelock: the handler returned nil after its context had ended: asynq runs the task again")
		return fmt.Errorf("%w: %w", errNilAfterCancel, context.Cause(run))
	}
	log.Warn("queuelock: the handler returned nil after its context had ended: the task counts as done. If it left because of that, its work is not done: have it return an error, or say WithNilAfterCancel(NotDone)")
	return nil
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
		patience = min(patience, time.Until(d.deadline.tell))
	}
	record := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		return held[0].Complete(ctx, []byte(time.Now().UTC().Format(time.RFC3339)))
	}
	var err error
	if held[1] == nil {
		err = record()
	} else {
		var recorded sync.WaitGroup
		recorded.Go(func() { err = record() })
		held[1].Release(ctx) // not in the goroutine: others wait for it, and a request waits for the batch before it
		recorded.Wait()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, core.ErrLost):
		d.event(ctx, EventRefused)
		return fmt.Errorf("queuelock: the handler succeeded, but its completion was refused: another delivery of the task has begun, which decides, or too many lock nodes forgot whether one has: %w", err)
	}
	d.event(ctx, EventUnrecorded)
	d.log(ctx).Error("queuelock: the handler succeeded, but its completion could not be recorded: should asynq deliver the task again, it runs again", "err", err)
	return nil
}
