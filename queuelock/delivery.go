package queuelock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/semaphore"
)

// A delivery is one arrival of a task at a handler. Only the goroutine of the handler changes it.
type delivery struct {
	*Middleware
	origin
	state state
	task  *asynq.Task

	keys              []string             // of its leases: the task's identity, and the key of WithKey if it has one
	limit             *semaphore.Semaphore // of the key, with WithConcurrency; nil otherwise
	recordsCompletion bool
	lastAttempt       bool // asynq archives the task, whatever the error

	startedAt time.Time
	// After the task's deadline asynq ignores results, so every wait ends before it.
	waitDeadline time.Time // if the task can be delivered again
	giveUpAt     time.Time // on the last attempt

	leaseCtx      context.Context // of the leases; it outlasts the task's context
	abandonLeases func()          // ends leaseCtx: the leases then expire
}

// newDelivery returns the delivery of a task. If the task cannot be run, it returns the error for asynq.
func (m *Middleware) newDelivery(ctx context.Context, t *asynq.Task, from origin) (*delivery, error) {
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	d := &delivery{Middleware: m, task: t, origin: from, startedAt: time.Now(), lastAttempt: retried >= maxRetry}
	d.startRequest()

	deadline, _ := ctx.Deadline()
	remaining := time.Until(deadline)
	d.waitDeadline = deadline.Add(-remaining / 2)
	d.giveUpAt = deadline.Add(-min(remaining/10, time.Second))

	if err := d.findKeys(ctx); err != nil {
		if ctx.Err() != nil { // a key function may have failed because of that
			d.transition(onContextEnd)
		} else {
			d.transition(onKeyInvalid)
		}
		return nil, d.conclude(ctx, err)
	}

	d.warnOfForeignID(ctx)
	return d, nil
}

// findKeys sets the keys of the leases that the task runs under.
func (d *delivery) findKeys(ctx context.Context) error {
	queue, _ := asynq.GetQueueName(ctx)
	identity, recordsCompletion := taskIdentity(d.taskID(ctx), queue, d.task)
	d.keys = []string{identity}
	d.recordsCompletion = recordsCompletion

	key, err := d.key(ctx, d.task)
	if err != nil {
		return fmt.Errorf("key of the task: %w", err)
	}
	if key == "" {
		return nil
	}
	d.keys = append(d.keys, key)
	return d.findLimit(ctx)
}

// findLimit sets the semaphore of the key, if there is a number of permits.
func (d *delivery) findLimit(ctx context.Context) error {
	if d.concurrency == nil {
		return nil
	}
	k, err := d.concurrency(ctx, d.task)
	if err != nil {
		return fmt.Errorf("concurrency of the key: %w", err)
	}

	d.limit, err = semaphore.New(d.locker, k)
	return err
}

// maxForeignTypes limits the types of task that a process warns of: types may be made up at run time.
const maxForeignTypes = 256

// warnOfForeignID warns, at the first task of a type with a foreign id, that its completions are not recorded.
func (d *delivery) warnOfForeignID(ctx context.Context) {
	if d.recordsCompletion || d.foreignCount.Load() >= maxForeignTypes {
		return
	}
	_, logged := d.foreignTypes.LoadOrStore(d.task.Type(), true)
	if logged {
		return
	}

	d.foreignCount.Add(1)
	d.report(ctx, EventForeignID)
	d.logger(ctx).Warn("queuelock: tasks of this type have ids of their producer's making: " +
		"such a task may run again although it has completed, because another task may reuse its id. " +
		"If no other task does, make the id by queuelock.ID")
}

// startRequest sets the first state of a request for a lease.
func (d *delivery) startRequest() {
	d.state = trying
	if d.lastAttempt {
		d.state = persisting
	}
}

// transition changes the state.
func (d *delivery) transition(t trigger) { d.state = transitions[t][d.state] }

func (d *delivery) taskID(ctx context.Context) string {
	id, _ := asynq.GetTaskID(ctx)
	return id
}

// report sends an event to the observer.
func (d *delivery) report(ctx context.Context, kind core.EventKind) {
	d.locker.Event(ctx, core.Event{Source: "queuelock", Name: d.task.Type(), Kind: kind})
}

// logger returns a logger that names the task, with hashes of its keys: as in core, keys may be secrets.
func (d *delivery) logger(ctx context.Context) *slog.Logger {
	queue, _ := asynq.GetQueueName(ctx)
	log := d.locker.Logger().With("type", d.task.Type(), "queue", queue, "id", d.taskID(ctx))

	names := []string{"identity_hash", "key_hash"}
	for i, key := range d.keys {
		sum := sha256.Sum256([]byte(key))
		log = log.With(names[i], hex.EncodeToString(sum[:8]))
	}
	return log
}
