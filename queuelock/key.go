package queuelock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"
)

// Keys of locks, all length-delimited, so that no input can stand for another key:
//
//	queue/task/<queue>/<id>[/<execution>]   identity by default
//	queue/identity/<identity>               WithIdentity
//	queue/key/<key>                         WithKey
//
// What is longer than core takes is hashed.
const (
	taskKeys     = "queue/task/"
	identityKeys = "queue/identity/"
	entityKeys   = "queue/key/"

	maxKeyLen = 512
)

// ExecutionHeader is the header of a task in which Stamp puts the execution id.
const ExecutionHeader = "lockkit-execution"

// A KeyFunc derives a key from a task, for WithKey and WithIdentity. It is called on each delivery, before
// anything is locked, and may be called concurrently. An empty key means that there is nothing to lock. If
// it fails, the task is not run, and retried like any that failed.
type KeyFunc func(ctx context.Context, t *asynq.Task) (string, error)

// ByPayloadField takes the key from a field of a JSON payload, by the path to it: ByPayloadField("order",
// "id") reads 42 from {"order":{"id":42}} and yields "order.id=42". The field must be a string, a number
// or a boolean, and not empty; a number counts as it is written, so 42 and 42.0 are two keys, while 42 and
// "42" are one.
func ByPayloadField(path ...string) KeyFunc {
	name := strings.Join(path, ".")
	return func(_ context.Context, t *asynq.Task) (string, error) {
		value, err := payloadField(t.Payload(), path)
		if err != nil {
			return "", fmt.Errorf("payload field %q: %w", name, err)
		}
		return name + "=" + value, nil
	}
}

func payloadField(payload []byte, path []string) (string, error) {
	raw := json.RawMessage(payload)
	for _, name := range path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return "", fmt.Errorf("%q cannot be looked up: %w", name, err)
		}
		var ok bool
		if raw, ok = object[name]; !ok {
			return "", errors.New("is missing")
		}
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", err
	}
	switch v := value.(type) {
	case string:
		if v != "" {
			return v, nil
		}
	case float64, bool:
		return string(raw), nil
	}
	return "", fmt.Errorf("must be a string, a number or a boolean, and not empty; it is %.40s", raw)
}

// ByHeader takes the key from a header of the task (asynq.NewTaskWithHeaders), and yields "name=value". A
// header that is missing or empty is an error.
func ByHeader(name string) KeyFunc {
	return func(_ context.Context, t *asynq.Task) (string, error) {
		value := t.Headers()[name]
		if value == "" {
			return "", fmt.Errorf("header %q is missing or empty", name)
		}
		return name + "=" + value, nil
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
// must not have a fixed id.
func Stamp(headers map[string]string) map[string]string {
	stamped := make(map[string]string, len(headers)+1)
	maps.Copy(stamped, headers)
	stamped[ExecutionHeader] = rand.Text()
	return stamped
}

// identity is the key under which the completion of the task is recorded.
func (r *Runner) identity(ctx context.Context, t *asynq.Task) (string, error) {
	if r.conf.identity != nil {
		id, err := r.conf.identity(ctx, t)
		if err == nil && id == "" {
			err = errors.New("is empty")
		}
		return delimited(identityKeys, id), err
	}
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	if execution := t.Headers()[ExecutionHeader]; execution != "" {
		return delimited(taskKeys, queue, id, execution), nil
	}
	return delimited(taskKeys, queue, id), nil
}

// entity is the key of what the task works on, "" for none.
func (r *Runner) entity(ctx context.Context, t *asynq.Task) (string, error) {
	if r.conf.key == nil {
		return "", nil
	}
	key, err := r.conf.key(ctx, t)
	if err != nil || key == "" {
		return "", err
	}
	return delimited(entityKeys, key), nil
}

// delimited joins parts so that different parts make different keys. A part begins with its length, which is
// a digit, so that no key looks like a hashed one.
func delimited(kind string, parts ...string) string {
	var b strings.Builder
	b.WriteString(kind)
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(strconv.Itoa(len(part)))
		b.WriteByte(':')
		b.WriteString(part)
	}
	if b.Len() <= maxKeyLen {
		return b.String()
	}
	sum := sha256.Sum256([]byte(b.String()))
	return kind + "sha256:" + hex.EncodeToString(sum[:])
}
