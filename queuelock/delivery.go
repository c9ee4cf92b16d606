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
	origin
	state             state
	task              *asynq.Task
	keys              []string // of its leases: of the identity of the task, and of what it works on, if it has one
	recordsCompletion bool     // the completion is to be recorded
	lastAttempt       bool     // asynq archives the task whatever the error is
	startedAt         time.Time
	waitDeadline      time.Time       // until when the task may wait if it can come back
	giveUpAt          time.Time       // … and if it cannot. At its deadline asynq takes it for failed, and hears nothing any more
	leaseCtx          context.Context // of the leases
	abandonLeases     func()          // ends it
}

// findKeys finds the keys of the leases that the task runs under: of its identity, and of what it works on, if it has one.
func (d *delivery) findKeys(ctx context.Context) error {
	queue, _ := asynq.GetQueueName(ctx)
	identity, recordsCompletion := taskIdentity(d.taskID(ctx), queue, d.task)
	d.keys, d.recordsCompletion = []string{identity}, recordsCompletion
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
func (d *delivery) startRequest() {
	d.state = trying
	if d.lastAttempt {
		d.state = persisting
	}
}

// happens changes the state, and returns what follows.
func (d *delivery) transition(h trigger) state {
	d.state = transitions[h][d.state]
	return d.state
}

func (d *delivery) report(ctx context.Context, kind core.EventKind) {
	d.locker.Event(ctx, core.Event{Source: "queuelock", Name: d.task.Type(), Kind: kind})
}

// log returns a logger that names the task, with hashes of its keys.
func (d *delivery) logger(ctx context.Context) *slog.Logger {
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
func (l leases) lostError() error { return cmp.Or(l[0].Lost(), l[1].Lost()) }

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
	d.leaseCtx, d.abandonLeases = context.WithCancel(context.WithoutCancel(ctx))
	complete := false
	defer func() {
		if !complete { // a callback has ended the goroutine; else there is nothing left to release
			held.release(ctx)
		}
	}()
	for i := 0; i < len(d.keys); i++ {
		if held[i], err = d.acquireKey(ctx, held, d.keys[i]); d.state == running {
			continue
		}
		held.release(ctx)
		if d.state != persisting {
			return leases{}, err
		}
		if core.ClassOf(err) == core.ClassClosed { // asynq may put the task back meanwhile
			pause.For(ctx, time.Until(d.giveUpAt))
		}
		held, i = leases{}, -1
	}
	complete = true
	return held, nil
}

// take tries to take one key, and waits for it once if that is of use. Only a last attempt goes on waiting.
func (d *delivery) acquireKey(ctx context.Context, earlier leases, key string) (lease *core.Lease, err error) {
	d.startRequest()
	for {
		lease, err = d.requestLease(ctx, key)
		if err == nil {
			err = errors.Join(ctx.Err(), earlier.lostError()) // the first lease, while it waited for the second
		}
		t := d.classify(ctx, err)
		if !d.transition(t).isWaiting() || t == onLeaseLost || t == onClosed {
			return lease, err
		}
		if d.state == persisting { // core refuses at once who cannot wait until a key does not rest any more
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
	maxWait := time.Until(d.waitDeadline)
	switch d.state {
	case stranded:
		maxWait = min(maxWait, d.server.outage.waitLimit(d.keys[0])-time.Since(d.startedAt))
	case persisting:
		maxWait = time.Until(d.giveUpAt)
	}
	return d.locker.Acquire(d.leaseCtx, key, name, core.MaxWait(max(maxWait, time.Millisecond)))
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
	t, known := triggerOf[class]
	switch {
	case err == nil:
		return onGranted
	case ctx.Err() != nil:
		return onContextEnd
	case class == core.ClassDone && op.Key == d.keys[0]:
		return onCompleted
	case !known:
		return onKeyInvalid
	case d.state == persisting && t != onLeaseLost && !time.Now().Before(d.giveUpAt):
		return onTimeUp
	case d.state == trying && t == onHeld && (cooldownOf(err) > time.Second || !d.server.tryTakePlace()):
		return onNoPlace
	}
	return t
}
