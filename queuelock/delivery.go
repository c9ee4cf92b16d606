package queuelock

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// A delivery is one arrival of a task at a handler.
type delivery struct {
	*Middleware
	state      state
	task       *asynq.Task
	keys       []string // of its leases: of the identity of the task, and of what it works on, if it has one
	remembered bool     // the completion is to be recorded
	atLast     bool     // asynq archives the task whatever the error is
	began      time.Time
	half       time.Time // until when the task may wait if it can come back
	last       time.Time // … and if it cannot. At its deadline asynq takes it for failed, and hears nothing any more
	server     *server
	hold       context.Context // of the leases
	abandon    func()          // ends it
}

// findKeys finds the keys of the leases that the task runs under: of its identity, and of what it works on, if it has one.
func (d *delivery) findKeys(ctx context.Context) error {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	d.keys, d.remembered = []string{core.Key("queue", "task", queue, id)}, remembers(id)
	if d.remembered { // whatever the queue
		d.keys[0] = core.Key("queue", "task", id)
	}
	key, err := d.key(ctx, d.task)
	if err != nil {
		return fmt.Errorf("key of the task: %w", err)
	}
	if key != "" {
		d.keys = append(d.keys, key)
	}
	return nil
}

// happens changes the state, and returns what follows.
func (d *delivery) happens(h happening) state {
	d.state = life[h][d.state]
	return d.state
}

func (d *delivery) count(ctx context.Context, kind core.EventKind) {
	d.locker.Event(ctx, core.Event{Source: "queuelock", Name: d.task.Type(), Kind: kind})
}

// log returns a logger that names the task and its keys.
func (d *delivery) log(ctx context.Context) *slog.Logger {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	log := d.locker.Logger().With("type", d.task.Type(), "queue", queue, "id", id)
	for i, key := range d.keys {
		log = log.With([]string{"identity", "key"}[i], key)
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
