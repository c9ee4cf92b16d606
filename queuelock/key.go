package queuelock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/jsonfield"
)

// A KeyFunc returns the key of a task's subject, for WithKey. It is called at each delivery, perhaps concurrently,
// before any lease is acquired. If the key is empty, there is nothing to lock. If the function fails, the task is not
// run and counts as failed. Pass all input from outside through [core.Key]: a payload that can name a whole key can
// name any key.
type KeyFunc func(ctx context.Context, t *asynq.Task) (string, error)

// ByPayloadField returns the key of a field of a JSON payload, by the path to it. ByPayloadField("order", "id") reads
// 42 from {"order":{"id":42}} and returns core.Key("order.id", "42"), which a call of [core.Locker.Do], a route or a
// job can use as well. ByPayloadField("order.id") reads {"order.id":42}. If the path is empty or has an empty name, New
// fails.
//
// The field must be a string, a number or a boolean, and not empty. A number counts as it is written: 42 and 42.0 are
// two keys, 42 and "42" are one. A field that occurs twice, even with different case, is an error, because decoders
// differ in which of the two they use. A string with anything that is not Unicode, such as half of a surrogate pair, is
// an error, because decoders replace all of that by the same character.
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

// ByHeader returns core.Key(name, value) of a header of the task (asynq.NewTaskWithHeaders). A header that is missing
// or empty is an error. If the name is empty, New fails.
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

// Optional returns a KeyFunc for types of which some tasks have no key: if ByPayloadField does not find its field, or
// ByHeader its header, the key is empty.
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

// idPrefix is the beginning of the ids that ID makes.
const idPrefix = "lockkit:"

// ID returns an option that makes a task's id from parts that identify it, such as a type and the number of an order:
//
//	client.Enqueue(asynq.NewTask("charge", payload), queuelock.ID("charge", orderID))
//
// Tasks with the same ID are one task, in any queue. While asynq has the first in a queue, it refuses a second one in
// that queue with asynq.ErrTaskIDConflict. A task that is enqueued later is not run while the completion of the first
// is remembered ([WithRetention]). If there are no parts or one of them is empty, Enqueue fails: "task ID cannot be
// empty".
//
// Producers in other languages can make the same id: "lockkit:" and the parts with slashes between them, each part as
// its number of bytes, a colon and its text: "lockkit:6:charge/2:42". If the parts take more than 512 bytes, they are
// replaced by "sha256:" and the SHA-256 sum of that text in hex.
func ID(parts ...string) asynq.Option {
	if len(parts) == 0 || slices.Contains(parts, "") {
		return asynq.TaskID("")
	}
	return asynq.TaskID(idPrefix + core.Key(parts...))
}

// taskIdentity returns the key of a task's identity, and whether its completion is recorded. An id that ID made is the
// whole identity. Producers may give any other id, even a random UUID as asynq makes them, to several tasks: a "charge"
// and a "ship" of one order. They differ in their queue, type or payload, which are the same in each delivery of a
// task.
func taskIdentity(id, queue string, t *asynq.Task) (key string, recordsCompletion bool) {
	if strings.HasPrefix(id, idPrefix) {
		return core.Key("queue", "task", id), true
	}

	content := sha256.Sum256([]byte(core.Key(t.Type()) + "/" + string(t.Payload())))
	return core.Key("queue", "task", queue, id, hex.EncodeToString(content[:8])), isUUID(id)
}

// isUUID reports whether an id looks like an id that asynq made.
func isUUID(id string) bool {
	u, err := uuid.Parse(id)
	if err != nil {
		return false
	}
	return u.Version() == 4 && u.String() == id // Parse also accepts other forms
}

// noKey is the default of WithKey.
func noKey(context.Context, *asynq.Task) (string, error) { return "", nil }
