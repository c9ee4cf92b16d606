package queuelock

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// acquire takes the leases of a delivery: first that of the identity, then that of the key. Everybody takes them in this
// order, and a task works on one thing, so nobody waits for somebody who waits for them. The identity comes first because a
// duplicate of a completed task must not wait for what is busy. A last attempt that loses it while it waits for the key
// begins anew, and one whose Locker is closed, which waits for its leases, gives it back.
func (d *delivery) acquire(ctx context.Context) (held leases, err error) {
	d.hold, d.abandon = context.WithCancel(context.WithoutCancel(ctx))
	for i := 0; i < len(d.keys); i++ {
		if held[i], err = d.take(ctx, held, d.keys[i]); d.state == running {
			continue
		}
		held.release(ctx)
		if d.state != persisting {
			return leases{}, err
		}
		if core.ClassOf(err) == core.ClassClosed { // asynq may put the task back meanwhile
			pause.For(ctx, time.Until(d.last))
		}
		held, i = leases{}, -1
	}
	return held, nil
}

// take tries to take one key, and waits for it once if that is of use. Only a last attempt goes on waiting.
func (d *delivery) take(ctx context.Context, before leases, key string) (lease *core.Lease, err error) {
	d.state = trying
	if d.atLast {
		d.state = persisting
	}
	for {
		lease, err = d.ask(ctx, key)
		if err == nil {
			err = errors.Join(ctx.Err(), before.lost()) // the first lease, while it waited for the second
		}
		what := d.hears(ctx, err)
		if d.state == waiting {
			<-d.server.places
		}
		if !d.happens(what).waits() || what == lost || what == closed {
			return lease, err
		}
		if d.state == persisting { // core refuses at once who cannot wait until a key does not rest any more
			pause.For(ctx, min(restOf(err), time.Until(d.last)))
		}
	}
}

// ask asks for a key, and waits for as long as the state allows. The end of ctx ends the wait, and not the lease: asynq ends
// ctx and hands the task to somebody else while the handler is still at work.
func (d *delivery) ask(ctx context.Context, key string) (*core.Lease, error) {
	defer context.AfterFunc(ctx, d.abandon)()
	name := core.Name(d.task.Type())
	if d.state == trying {
		return d.locker.TryAcquire(d.hold, key, name)
	}
	patience := time.Until(d.half)
	switch d.state {
	case stranded:
		patience = min(patience, d.server.outage.patience(d.keys[0])-time.Since(d.began))
	case persisting:
		patience = time.Until(d.last)
	}
	return d.locker.Acquire(d.hold, key, name, core.MaxWait(max(patience, time.Millisecond)))
}

// meaning is what the classes of errors mean to a delivery that asks for a lease.
var meaning = map[core.Class]happening{
	core.ClassHeld:        held,
	core.ClassUnavailable: unreachable,
	core.ClassClosed:      closed,
	core.ClassLost:        lost,
}

// hears returns what the answer of the nodes means. If the key is held, it takes a waiting place.
func (d *delivery) hears(ctx context.Context, err error) happening {
	op, _ := errors.AsType[*core.OpError](err)
	class := core.ClassOf(err)
	what, known := meaning[class]
	switch {
	case err == nil:
		return granted
	case ctx.Err() != nil:
		return ended
	case class == core.ClassDone && op.Key == d.keys[0]:
		return completed
	case !known:
		return wrong
	case d.state == persisting && what != lost && !time.Now().Before(d.last):
		return late
	case d.state == trying && what == held && (restOf(err) > time.Second || !d.server.takePlace()):
		return crowded
	}
	return what
}
