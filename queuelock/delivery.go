package queuelock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/pause"
)

// A delivery is one arrival of a task at a handler.
type delivery struct {
	*Middleware
	arrival
	state      state
	task       *asynq.Task
	keys       []string // of its leases: of the identity of the task, and of what it works on, if it has one
	remembered bool     // the completion is to be recorded
	atLast     bool     // asynq archives the task whatever the error is
	began      time.Time
	half       time.Time       // until when the task may wait if it can come back
	last       time.Time       // … and if it cannot. At its deadline asynq takes it for failed, and hears nothing any more
	hold       context.Context // of the leases
	abandon    func()          // ends it
}

// findKeys finds the keys of the leases that the task runs under: of its identity, and of what it works on, if it has one.
func (d *delivery) findKeys(ctx context.Context) error {
	queue, _ := asynq.GetQueueName(ctx)
	identity, remembered := identify(d.taskID(ctx), queue, d.task)
	d.keys, d.remembered = []string{identity}, remembered
	key, err := d.key(ctx, d.task)
	if err != nil {
		return fmt.Errorf("key of the task: %w", err)
	}
	if key != "" {
		d.keys = append(d.keys, key)
	}
	return nil
}

func (d *delivery) taskID(ctx context.Context) string {
	id, _ := asynq.GetTaskID(ctx)
	return id
}

// begin is the first state of a request for a lease.
func (d *delivery) begin() {
	d.state = trying
	if d.atLast {
		d.state = persisting
	}
}

// happens changes the state, and returns what follows.
func (d *delivery) happens(h happening) state {
	d.state = life[h][d.state]
	return d.state
}

func (d *delivery) count(ctx context.Context, kind core.EventKind) {
	d.locker.Event(ctx, core.Event{Source: "queuelock", Name: d.task.Type(), Kind: kind})
}

// log returns a logger that names the task, with hashes of its keys.
func (d *delivery) log(ctx context.Context) *slog.Logger {
	queue, _ := asynq.GetQueueName(ctx)
	log := d.locker.Logger().With("type", d.task.Type(), "queue", queue, "id", d.taskID(ctx))
	for i, key := range d.keys {
		sum := sha256.Sum256([]byte(key)) // as in core's lines: keys may be secrets
		log = log.With([]string{"identity_hash", "key_hash"}[i], hex.EncodeToString(sum[:8]))
	}
	return log
}

// leases are those of one delivery, in the order of its keys: the second is nil if it has one key.
type leases [2]*core.Lease

func (l leases) innermost() *core.Lease { return cmp.Or(l[1], l[0]) }

// lost returns why one of them was lost, or nil.
func (l leases) lost() error { return cmp.Or(l[0].Lost(), l[1].Lost()) }

// release gives the leases back. What could not be confirmed core logs, goes on trying and lets run out.
func (l leases) release(ctx context.Context) {
	l[1].Release(ctx) // which does nothing if there is none
	l[0].Release(ctx)
}

// acquire takes the leases of a delivery: first that of the identity, then that of the key. Everybody takes them in this
// order, and a task works on one thing, so nobody waits for somebody who waits for them. The identity comes first because a
// duplicate of a completed task must not wait for what is busy. A last attempt that loses it while it waits for the key
// begins anew, and one whose Locker is closed, which waits for its leases, gives it back.
func (d *delivery) acquire(ctx context.Context) (held leases, err error) {
	d.hold, d.abandon = context.WithCancel(context.WithoutCancel(ctx))
	whole := false
	defer func() {
		if !whole { // a callback has ended the goroutine; else there is nothing left to release
			held.release(ctx)
		}
	}()
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
	whole = true
	return held, nil
}

// take tries to take one key, and waits for it once if that is of use. Only a last attempt goes on waiting.
func (d *delivery) take(ctx context.Context, before leases, key string) (lease *core.Lease, err error) {
	d.begin()
	for {
		lease, err = d.ask(ctx, key)
		if err == nil {
			err = errors.Join(ctx.Err(), before.lost()) // the first lease, while it waited for the second
		}
		what := d.hears(ctx, err)
		if !d.happens(what).waits() || what == lost || what == closed {
			return lease, err
		}
		if d.state == persisting { // core refuses at once who cannot wait until a key does not rest any more
			pause.For(ctx, min(restOf(err), time.Until(d.last)))
		}
	}
}

// ask asks for a key, and waits for as long as the state allows. Then it leaves the waiting place, if it has one. The end of ctx ends the wait, and not the lease: asynq ends
// ctx and hands the task to somebody else while the handler is still at work.
func (d *delivery) ask(ctx context.Context, key string) (*core.Lease, error) {
	defer context.AfterFunc(ctx, d.abandon)()
	if d.state == waiting {
		defer d.server.leavePlace()
	}
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
