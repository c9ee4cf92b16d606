package queuelock

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
)

// The ids of tasks that this package enqueues begin with these.
const (
	tickPrefix = "lockkit-tick:" // by a Scheduler, for one tick
	oncePrefix = "lockkit-once:" // by Enqueue, for one identity
)

// ofTick reports whether a Scheduler has enqueued the task. Its identity is the tick, which no payload tells.
func ofTick(ctx context.Context) bool {
	id, _ := asynq.GetTaskID(ctx)
	return strings.HasPrefix(id, tickPrefix)
}

// lookForStamp says, at the first task of a type, that its id may be used again: neither is it made up by asynq, nor has
// the producer stamped the task. It says so before any harm: the second task under an id is not run.
func (d *delivery) lookForStamp(ctx context.Context) {
	if !d.unstamped(ctx) {
		return
	}
	if _, seen := d.r.unstamped.LoadOrStore(d.name, true); !seen {
		d.event(ctx, EventUnstamped)
		d.log(ctx).Warn("queuelock: tasks of this type have ids of their producer's making, and no stamp: another task under an id that was completed within the retention is taken for a redelivery, and not run. If ids are used again, stamp the tasks (queuelock.Stamp) or use queuelock.Scheduler; if they never are, all is well")
	}
}

// unstamped reports whether another task may have the same identity, because it has the same id.
func (d *delivery) unstamped(ctx context.Context) bool {
	id, _ := asynq.GetTaskID(ctx)
	return d.identity == nil && d.task.Headers()[ExecutionHeader] == "" && !usedOnce(id)
}

// usedOnce reports whether no second task gets this id: it is a UUID that is not made of a name, or of this package.
func usedOnce(id string) bool {
	if strings.HasPrefix(id, tickPrefix) || strings.HasPrefix(id, oncePrefix) {
		return true
	}
	const canonical = 36 // Parse also takes 32 digits, which are rather an MD5 sum
	u, err := uuid.Parse(id)
	return err == nil && len(id) == canonical && u.Version() != 3 && u.Version() != 5
}
