package queuelock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// leases are those of one delivery, in the order of its keys: the second is nil if it has one key.
type leases [2]*core.Lease

func (l leases) innermost() *core.Lease { return cmp.Or(l[1], l[0]) }

// lost returns why one of them was lost, or nil.
func (l leases) lostError() error { return cmp.Or(l[0].Lost(), l[1].Lost()) }

// release gives the leases back. What could not be confirmed core logs, goes on trying and lets run out.
func (l leases) release(ctx context.Context) {
	l[1].Release(ctx) // does nothing if there is none
	l[0].Release(ctx)
}

// acquire takes the leases of a delivery: first that of the identity, then that of the key. Everybody takes them in this
// order, and a task works on one thing, so nobody waits for somebody who waits for them. The identity comes first because a
// duplicate of a completed task must not wait for what is busy. A last attempt that loses it while it waits for the key
// begins anew, and one whose Locker is closed, which waits for its leases, gives it back.
func (d *delivery) acquire(ctx context.Context) (leases, error) {
	// asynq ends ctx and delivers the task to another worker while the handler still runs. The leases must outlast
	// that.
	leaseCtx, abandonLeases := context.WithCancel(context.WithoutCancel(ctx))
	d.leaseCtx = leaseCtx
	d.abandonLeases = abandonLeases

	for {
		held, err := d.tryAcquire(ctx)
		if d.state != persisting {
			return held, err
		}
		if core.ClassOf(err) == core.ClassClosed { // asynq may reclaim the task before the end of the pause
			pause.For(ctx, time.Until(d.giveUpAt))
		}
	}
}

// tryAcquire acquires the lease of the identity, and then the lease of the key. Unless it acquires all of them, it
// releases those that it has. All deliveries lock in this order, and a task has one key, so they cannot deadlock. The
// identity comes first because a duplicate of a completed task must not wait for a busy key.
func (d *delivery) tryAcquire(ctx context.Context) (leases, error) {
	var held leases
	complete := false
	defer func() {
		if !complete { // a key is missing, or a callback has ended the goroutine
			held.release(ctx)
		}
	}()

	for i, key := range d.keys {
		lease, err := d.acquireKey(ctx, held, key)
		held[i] = lease
		if d.state != running {
			return leases{}, err
		}
	}
	complete = true
	return held, nil
}

// take tries to take one key, and waits for it once if that is of use. Only a last attempt goes on waiting.
func (d *delivery) acquireKey(ctx context.Context, earlier leases, key string) (lease *core.Lease, err error) {
	d.startRequest()
	for {
		lease, err = d.requestLease(ctx, key)
		if err == nil { // ctx or the earlier lease may have ended during the wait
			err = errors.Join(ctx.Err(), earlier.lostError())
		}

		t := d.classify(ctx, err)
		if t == onHeld && d.state == trying {
			t = d.takePlace(cooldownOf(err))
		}
		d.transition(t)

		canRetry := t != onLeaseLost && t != onClosed
		if !canRetry || !d.state.isWaiting() {
			return lease, err
		}
		if d.state == persisting { // core refuses at once if a cooldown outlasts the wait
			pause.For(ctx, min(cooldownOf(err), time.Until(d.giveUpAt)))
		}
	}
}

// ask asks for a key, and waits for as long as the state allows. Then it leaves the waiting place, if it has one. The end of ctx ends the wait, and not the lease: asynq ends
// ctx and hands the task to somebody else while the handler is still at work.
func (d *delivery) requestLease(ctx context.Context, key string) (*core.Lease, error) {
	defer context.AfterFunc(ctx, d.abandonLeases)()
	if d.state == waiting {
		defer d.server.releasePlace()
	}

	name := core.Name(d.task.Type())
	if d.state == trying {
		return d.locker.TryAcquire(d.leaseCtx, key, name)
	}
	return d.locker.Acquire(d.leaseCtx, key, name, core.MaxWait(max(d.maxWait(), time.Millisecond)))
}

// maxWait returns how long the delivery may wait in its state.
func (d *delivery) maxWait() time.Duration {
	maxWait := time.Until(d.waitDeadline)
	switch d.state {
	case stranded:
		limit := d.server.outage.startWait(d.keys[0])
		maxWait = min(maxWait, limit-time.Since(d.startedAt))
	case persisting:
		maxWait = time.Until(d.giveUpAt)
	}
	return maxWait
}

// meaning is what the classes of errors mean to a delivery that asks for a lease.
var triggerOf = map[core.Class]trigger{
	core.ClassHeld:        onHeld,
	core.ClassUnavailable: onUnreachable,
	core.ClassClosed:      onClosed,
	core.ClassLost:        onLeaseLost,
}

// hears returns what the answer of the nodes means. If the key is held, it takes a waiting place.
func (d *delivery) classify(ctx context.Context, err error) trigger {
	op, _ := errors.AsType[*core.OpError](err)
	class := core.ClassOf(err)
	t, ok := triggerOf[class]
	switch {
	case err == nil:
		return onGranted
	case ctx.Err() != nil:
		return onContextEnd
	case class == core.ClassDone && op.Key == d.keys[0]:
		return onCompleted
	case !ok:
		return onKeyInvalid
	}

	isTimeUp := d.state == persisting && !time.Now().Before(d.giveUpAt)
	if isTimeUp && t != onLeaseLost {
		return onTimeUp
	}
	return t
}

// takePlace takes a waiting place for a key that is held, and returns onHeld. It returns onNoPlace if there is none, or
// if a cooldown of the key makes a wait useless.
func (d *delivery) takePlace(cooldown time.Duration) trigger {
	if cooldown > time.Second {
		return onNoPlace
	}
	taken := d.server.tryTakePlace()
	if !taken {
		return onNoPlace
	}
	return onHeld
}
