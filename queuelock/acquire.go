package queuelock

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
)

// acquire takes the leases of a delivery: first that of the task, then that of the entity. Everybody takes
// them in this order, and each task has one entity, so nobody waits for somebody who waits for them. The
// task comes first because a duplicate of a completed task must not wait for a busy entity.
func (d *delivery) acquire(ctx context.Context) (*hold, error) {
	h := newHold(ctx, d.last)
	var err error
	if h.task, err = d.take(h, d.identity); err == nil && d.entity != "" {
		h.entity, err = d.take(h, d.entity)
	}
	if err == nil && h.keep(ctx, d) {
		return h, nil
	}
	h.release(ctx)
	if d.last && errors.Is(err, core.ErrClosed) {
		<-h.ctx.Done() // the process is ending: asynq puts the task back when it shuts down
	}
	if err == nil { // the waiting was over just when the last key was granted
		err = context.Cause(h.ctx)
	}
	h.end()
	return nil, err
}

// take takes one key. A key that is held is waited for in place where a seat is free, or where asynq leaves
// no choice: an error on the last attempt archives the task.
func (d *delivery) take(h *hold, key string) (*core.Lease, error) {
	locks, opts := d.r.locks, d.r.conf.of(d.name)
	lease, err := locks.TryAcquire(h.ctx, key, opts...)
	if d.last {
		for errors.Is(err, core.ErrHeld) || errors.Is(err, core.ErrUnavailable) {
			why := err
			lease, err = locks.Acquire(h.ctx, key, append(opts, core.WithMaxWait(0))...) // gives up after a TTL without a quorum
			if errors.Is(err, errLastMoment) {
				return nil, fmt.Errorf("%w: %w", errLastMoment, why)
			}
		}
		return lease, err
	}
	if errors.Is(err, core.ErrHeld) && d.r.conf.wait > 0 && d.seats.take() {
		defer d.seats.leave()
		return locks.Acquire(h.ctx, key, opts...)
	}
	return lease, err
}

// seats is how many workers may still wait in place; nil has none.
type seats chan struct{}

func (s seats) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s seats) leave() { <-s }
