package queuelock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/jsonfield"
)

// ExecutionHeader is the header of a task in which Stamp puts the execution id.
const ExecutionHeader = "lockkit-execution"

// A KeyFunc derives a key from a task, for WithKey and WithIdentity. It is called on each delivery, before
// anything is locked, and may be called concurrently. An empty key means that there is nothing to lock. If
// it fails, the task is not run, and retried like any that failed. Make keys by [core.Key] of all that comes from
// outside: a payload that can name a key as a whole can name that of anything else.
type KeyFunc func(ctx context.Context, t *asynq.Task) (string, error)

// ByPayloadField takes the key from a field of a JSON payload, by the path to it: ByPayloadField("order",
// "id") reads 42 from {"order":{"id":42}} and yields core.Key("order.id", "42"), which a call of [core.Locker.Do], a
// route or a job can use as well. ByPayloadField("order.id") reads {"order.id":42}. The field must be a string, a number or a boolean, and not empty; a number counts as it
// is written, so 42 and 42.0 are two keys, while 42 and "42" are one. A field that is there twice, also in another case, is an
// error: of those who decode the payload some take the one and some the other. So is a string that is not all Unicode, as
// with half of a surrogate pair: decoders have one character for all of that. An empty path, or an empty name in it, is an
// error of New.
func ByPayloadField(path ...string) KeyFunc {
	if len(path) == 0 || slices.Contains(path, "") {
		return nil // an error of New
	}
	name := strings.Join(path, ".")
	return func(_ context.Context, t *asynq.Task) (string, error) {
		value, err := jsonfield.Of(t.Payload(), path)
		if err != nil {
			return "", fmt.Errorf("payload field %q: %w", name, err)
		}
		return core.Key(name, value), nil
	}
}

// ByHeader takes the key from a header of the task (asynq.NewTaskWithHeaders), and yields
// core.Key(name, value). A header that is missing or empty is an error; an empty name is an error of New.
func ByHeader(name string) KeyFunc {
	if name == "" {
		return nil // an error of New
	}
	return func(_ context.Context, t *asynq.Task) (string, error) {
		value, ok := t.Headers()[name]
		switch {
		case !ok:
			return "", fmt.Errorf("header %q %w", name, jsonfield.ErrAbsent)
		case value == "":
			return "", fmt.Errorf("header %q is empty", name)
		}
		return core.Key(name, value), nil
	}
}

// Optional is key for tasks some of which have nothing to make it of: those have none, where ByPayloadField does not find
// its field, or ByHeader its header.
func Optional(key KeyFunc) KeyFunc {
	if key == nil {
		return nil // an error of New
	}
	return func(ctx context.Context, t *asynq.Task) (string, error) {
		k, err := key(ctx, t)
		if errors.Is(err, jsonfield.ErrAbsent) {
			return "", nil
		}
		return k, err
	}
}

// Stamp returns a copy of headers with a new execution id, for a task that is enqueued under an id which was
// in use before:
//
//	asynq.NewTaskWithHeaders("report", payload, queuelock.Stamp(nil), asynq.TaskID("report:daily"))
//
// Two tasks of one id but different execution ids are two tasks: without it the second one is taken for a
// redelivery of the first and, once that is completed, not run within the retention. Call it for each
// Enqueue; a task that an asynq.Scheduler enqueues again and again carries the same headers each time, and
// must not have a fixed id: use a [Scheduler], whose tasks need no stamp.
func Stamp(headers map[string]string) map[string]string {
	stamped := make(map[string]string, len(headers)+1)
	maps.Copy(stamped, headers)
	stamped[ExecutionHeader] = rand.Text()
	return stamped
}

// keys are those of the leases that a task is run under: its own, then that of what it works on, if it has one.
func (p *policy) keys(ctx context.Context, t *asynq.Task) ([]string, error) {
	own, err := p.ownKey(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("identity of the task: %w", err)
	}
	if p.key == nil {
		return []string{own}, nil
	}
	key, err := p.key(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("key of the task: %w", err)
	}
	if key == "" {
		return []string{own}, nil
	}
	return []string{own, key}, nil
}

// ownKey is the key under which the completion of a task is recorded.
func (p *policy) ownKey(ctx context.Context, t *asynq.Task) (string, error) {
	if p.identity != nil && !ofTick(ctx) {
		id, err := p.identity(ctx, t)
		if err == nil && id == "" {
			err = errors.New("it is empty")
		}
		if p.shared {
			return core.Key("queue", "identity", "", id), err
		}
		return core.Key("queue", "identity", t.Type(), id), err
	}
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	parts := []string{"queue", "task", queue, id}
	if execution := t.Headers()[ExecutionHeader]; execution != "" {
		parts = append(parts, execution)
	}
	return core.Key(parts...), nil
}
