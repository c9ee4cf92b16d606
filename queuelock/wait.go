package queuelock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// leases are those of one delivery, in the order of its keys: the second is nil where it has one key.
type leases [2]*core.Lease

func (l leases) innermost() *core.Lease { return cmp.Or(l[1], l[0]) }

// lost returns why one of them was lost, or nil.
func (l leases) lost() error { return cmp.Or(l[0].Lost(), l[1].Lost()) }

// release gives the leases back. What could not be confirmed core logs, goes on trying and lets run out.
func (l leases) release(ctx context.Context) {
	l[1].Release(ctx) // which does nothing where there is none
	l[0].Release(ctx)
}

// acquire takes the leases of a delivery: first that of the task, then that of what it works on. Everybody takes
// them in this order, and a task works on one thing, so nobody waits for somebody who waits for them. The task
// comes first because a duplicate of a completed task must not wait for what is busy.
//
// They outlive the task's context by the grace, because asynq ends that and hands the task to somebody else while
// the handler is still at work.
func (d *delivery) acquire(ctx context.Context) (leases, error) {
	d.wiring.absent.returned(d.keys)
	for { // a last attempt begins anew if it loses its first lease while it waits for the second
		held, err := d.takeAll(ctx)
		if core.ClassOf(err) != core.ClassLost || !d.last || ctx.Err() != nil {
			return held, err
		}
		if !time.Now().Before(d.deadline.last) {
			return held, fmt.Errorf("%w: %w", errLastMoment, err)
		}
	}
}

// takeAll takes them once, or none.
func (d *delivery) takeAll(ctx context.Context) (held leases, err error) {
	for i, key := range d.keys {
		if held[i], err = d.take(ctx, key); err == nil {
			err = errors.Join(ctx.Err(), held.lost()) // the first, while it waited for the second
		}
		if err != nil {
			held.release(ctx)
			return leases{}, err
		}
	}
	return held, nil
}

var errLastMoment = errors.New("the deadline of the last attempt came first")

// take takes one key, and waits in place for it as long as that is of use.
func (d *delivery) take(ctx context.Context, key string) (*core.Lease, error) {
	if d.last && !d.skips(key) {
		return d.takeAtLast(ctx, key)
	}
	lease, err := d.ask(ctx, d.r.locker.TryAcquire, key)
	if core.ClassOf(err) == core.ClassUnavailable {
		lease, err = d.takeWhenBack(ctx, key, err)
	}
	if lease != nil {
		d.wiring.rested(key)
		return lease, nil
	}
	if err = d.orKept(key, err); core.ClassOf(err) == core.ClassHeld && d.conflict == Wait && !rests(err) {
		if lease, err = d.takeInTurn(ctx, key, err); err != nil {
			err = d.orKept(key, err)
		}
	}
	return lease, err
}

// ask asks for a key by a method of the Locker. ctx bounds the wait; the context of the lease has its values, and ends
// when the delivery is abandoned.
func (d *delivery) ask(ctx context.Context, method func(context.Context, string, ...core.CallOption) (*core.Lease, error), key string, opts ...core.CallOption) (*core.Lease, error) {
	hold, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })()
	lease, err := method(holding{hold}, key, append(opts, d.lease...)...)
	if err == nil {
		d.abandon = append(d.abandon, func() { end(context.Cause(ctx)) })
	}
	return lease, err
}

// A holding is the context of a hold. It ends as the task's does: a deadline is no cancellation.
type holding struct{ context.Context }

func (h holding) Err() error {
	err := h.Context.Err()
	if err != nil && errors.Is(context.Cause(h.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// skips reports whether the task is dropped if that key is held.
func (d *delivery) skips(key string) bool {
	return d.conflict == Skip && len(d.keys) > 1 && key == d.keys[1]
}

// takeWhenBack waits for locks that are out of reach.
func (d *delivery) takeWhenBack(ctx context.Context, key string, err error) (*core.Lease, error) {
	left := min(d.wiring.outage.patience(d.keys[0]), time.Until(d.deadline.wait))
	if d.last {
		left = time.Until(d.deadline.last)
	}
	for until := time.Now().Add(left); core.ClassOf(err) == core.ClassUnavailable; left = time.Until(until) {
		switch {
		case left <= 0 && d.last:
			return nil, fmt.Errorf("%w: %w", errLastMoment, err)
		case left <= 0:
			d.wiring.outage.givenBack(d.keys[0])
			return nil, err
		}
		var lease *core.Lease
		if lease, err = d.ask(ctx, d.r.locker.Acquire, key, core.MaxWait(min(left, outagePatience))); err == nil {
			return lease, nil
		}
	}
	return nil, err
}

// takeInTurn waits for a key that is held, until its worker is needed for another task.
func (d *delivery) takeInTurn(ctx context.Context, key string, held error) (*core.Lease, error) {
	left := min(d.policy.wait, time.Until(d.deadline.wait))
	if left <= 0 {
		return nil, held
	}
	waiting := d.worker.wait(ctx, key)
	lease, err := d.ask(waiting, d.r.locker.Acquire, key, core.MaxWait(left))
	if !d.worker.waited() || ctx.Err() != nil {
		return lease, err
	}
	if lease != nil { // its context is over
		lease.Release(ctx)
	}
	return nil, held
}

// takeAtLast waits until the last moment, also for nodes that do not answer, which core gives up after a TTL.
func (d *delivery) takeAtLast(ctx context.Context, key string) (*core.Lease, error) {
	for {
		left := max(time.Until(d.deadline.last), time.Millisecond)
		lease, err := d.ask(ctx, d.r.locker.Acquire, key, core.MaxWait(left))
		switch class := core.ClassOf(err); {
		case class == core.ClassUnavailable && time.Now().Before(d.deadline.last):
			continue
		case class == core.ClassHeld, class == core.ClassUnavailable:
			return nil, fmt.Errorf("%w: %w", errLastMoment, err)
		}
		return lease, err
	}
}

// rests reports whether nobody holds the key, which was left taken when it was released, for longer than is to be waited
// for.
func rests(err error) bool {
	op, ok := errors.AsType[*core.OpError](err)
	return ok && op.Held == core.HeldRests && op.RetryAfter > briefRest
}
