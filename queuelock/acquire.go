package queuelock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// A leases holds the leases of one delivery, in the order of its keys. The second is zero if the task has no key.
type leases [2]lease

func (l leases) innermost() lease { return cmp.Or(l[1], l[0]) }

// lostError returns why one of the leases was lost, or nil.
func (l leases) lostError() error { return cmp.Or(l[0].lost(), l[1].lost()) }

// release releases the leases.
func (l leases) release(ctx context.Context) {
	l[1].release(ctx) // does nothing if there is none
	l[0].release(ctx)
}

// acquire acquires the leases of the delivery. On a last attempt it starts again if the lease of the identity is lost
// during the wait for the key. It does the same if the Locker is closed, without a lease in the meantime, because Close
// waits for leases.
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
// releases the acquired leases. All deliveries lock in this order, and a task has one key, so they cannot deadlock. The
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
		granted, err := d.acquireKey(ctx, held, key)
		held[i] = granted // even with an error: it may have been granted after the end of ctx

		if d.state != running {
			return leases{}, err
		}
	}

	complete = true
	return held, nil
}

// acquireKey tries to acquire one key, and waits for it once if that is of use. Only a last attempt waits more often.
func (d *delivery) acquireKey(ctx context.Context, earlier leases, key string) (granted lease, err error) {
	d.startRequest()
	for {
		granted, err = d.requestLease(ctx, key)
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
			return granted, err
		}
		if d.state == persisting { // core refuses at once if a cooldown outlasts the wait
			pause.For(ctx, min(cooldownOf(err), time.Until(d.giveUpAt)))
		}
	}
}

// requestLease requests a lease, and waits for it as long as the state allows. Afterwards it releases the waiting
// place, if the delivery has one. The end of ctx ends the wait, but not the lease.
func (d *delivery) requestLease(ctx context.Context, key string) (lease, error) {
	defer context.AfterFunc(ctx, d.abandonLeases)()
	if d.state == waiting {
		defer d.server.releasePlace()
	}

	opts := []core.CallOption{core.Name(d.task.Type())}
	if d.state != trying {
		opts = append(opts, core.MaxWait(max(d.maxWait(), time.Millisecond)))
	}
	if d.limit != nil && key != d.keys[0] {
		return d.requestPermit(key, opts)
	}

	request := d.locker.Acquire
	if d.state == trying {
		request = d.locker.TryAcquire
	}
	granted, err := request(d.leaseCtx, key, opts...)
	return lease{lock: granted}, err
}

// requestPermit requests one of the permits for the key, as requestLease requests a lease.
func (d *delivery) requestPermit(key string, opts []core.CallOption) (lease, error) {
	request := d.limit.Acquire
	if d.state == trying {
		request = d.limit.TryAcquire
	}
	granted, err := request(d.leaseCtx, key, opts...)
	return lease{permit: granted}, err
}

// maxWait returns how long the delivery may wait in its state.
func (d *delivery) maxWait() time.Duration {
	maxWait := time.Until(d.waitDeadline)
	switch d.state {
	case stranded:
		// The limit is for the delivery, which may have waited for its first key already.
		limit := d.server.outage.startWait(d.keys[0])
		maxWait = min(maxWait, limit-time.Since(d.startedAt))
	case persisting:
		maxWait = time.Until(d.giveUpAt)
	}
	return maxWait
}

// triggerOf is the trigger for each class of error of a request.
var triggerOf = map[core.Class]trigger{
	core.ClassHeld:        onHeld,
	core.ClassUnavailable: onUnreachable,
	core.ClassClosed:      onClosed,
	core.ClassLost:        onLeaseLost,
}

// classify returns the trigger for the result of a request.
func (d *delivery) classify(ctx context.Context, err error) trigger {
	op, _ := errors.AsType[*core.OpError](err)
	class := core.ClassOf(err)
	t, ok := triggerOf[class]

	switch {
	case err == nil:
		return onGranted
	case ctx.Err() != nil:
		return onContextEnd
	case class == core.ClassDone && op.Key == d.keys[0]: // another key that is completed is invalid
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
