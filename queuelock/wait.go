package queuelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
)

// leases are those of one delivery, in the order of its keys.
type leases []*core.Lease

func (l leases) innermost() *core.Lease { return l[len(l)-1] }

// acquire takes the leases of a delivery: first that of the task, then that of what it works on. Everybody takes
// them in this order, and a task works on one thing, so nobody waits for somebody who waits for them. The task
// comes first because a duplicate of a completed task must not wait for what is busy.
//
// They outlive the task's context by the grace, because asynq ends that and hands the task to somebody else while
// the handler is still at work.
func (d *delivery) acquire(ctx context.Context) (leases, error) {
	var held leases
	for _, key := range d.keys {
		lease, err := d.take(ctx, key)
		if err == nil {
			held, err = append(held, lease), ctx.Err()
		}
		if err != nil {
			held.release(ctx)
			return nil, err
		}
	}
	return held, nil
}

// take takes one key. A key that is held is waited for in place where a seat is free, or where asynq leaves
// no choice: an error on the last attempt archives the task.
func (d *delivery) take(ctx context.Context, key string) (*core.Lease, error) {
	opts := d.r.conf.lease(d.name)
	if d.last {
		return d.takeAtLast(ctx, key, opts)
	}
	lease, err := d.r.locker.TryAcquire(ctx, key, opts...)
	if core.ClassOf(err) != core.ClassHeld || d.r.conf.wait == 0 {
		return lease, err
	}
	select {
	case d.seats <- struct{}{}:
		defer func() { <-d.seats }()
		return d.r.locker.Acquire(ctx, key, append(opts, core.MaxWait(d.r.conf.wait))...)
	default:
		return nil, err
	}
}

var errLastMoment = errors.New("the deadline of the last attempt came first")

// takeAtLast waits until the last moment, also for nodes that do not answer, which core gives up after a TTL.
func (d *delivery) takeAtLast(ctx context.Context, key string, opts []core.CallOption) (*core.Lease, error) {
	for {
		left := max(time.Until(d.until), time.Millisecond)
		lease, err := d.r.locker.Acquire(ctx, key, append(opts, core.MaxWait(left))...)
		switch class := core.ClassOf(err); {
		case class == core.ClassUnavailable && time.Now().Before(d.until):
			continue
		case class == core.ClassHeld, class == core.ClassUnavailable:
			return nil, fmt.Errorf("%w: %w", errLastMoment, err)
		}
		return lease, err
	}
}

// release gives the leases back. What could not be confirmed core logs, goes on trying and lets run out.
func (l leases) release(ctx context.Context) {
	for _, lease := range slices.Backward(l) {
		lease.Release(ctx)
	}
}
