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

// A KeyFunc returns the key of what a task works on, for WithKey. It is called at each delivery, maybe concurrently, before
// anything is locked. If the key is empty, there is nothing to lock. If it fails, the task is not run and counts as failed.
// Make keys by [core.Key] of all that comes from outside: a payload that can name a whole key can name that of anything else.
type KeyFunc func(ctx context.Context, t *asynq.Task) (string, error)

// ByPayloadField returns the key of a field of a JSON payload, by the path to it. ByPayloadField("order", "id") reads 42 from
// {"order":{"id":42}} and returns core.Key("order.id", "42"), which a call of [core.Locker.Do], a route or a job can use as
// well. ByPayloadField("order.id") reads {"order.id":42}. If the path is empty or has an empty name, New fails.
//
// The field must be a string, a number or a boolean, and not empty. A number counts as it is written: 42 and 42.0 are two
// keys, 42 and "42" are one. A field that is there twice, also in another case, is an error, because decoders differ in
// which of them they take. A string that is not all Unicode, as with half of a surrogate pair, is an error, because decoders
// read the same character for all of that.
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

// ByHeader returns core.Key(name, value) of a header of the task (asynq.NewTaskWithHeaders). A header that is missing or
// empty is an error. If the name is empty, New fails.
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

// Optional returns a KeyFunc for tasks some of which have no key: where ByPayloadField does not find its field, or ByHeader
// its header.
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

// idPrefix begins the ids that ID makes.
const idPrefix = "lockkit:"

// ID returns an option for a task that is known by these parts, such as a type and the number of an order:
//
//	client.Enqueue(asynq.NewTask("charge", payload), queuelock.ID("charge", orderID))
//
// Tasks of one ID are one task, in whatever queue: asynq refuses a second one with asynq.ErrTaskIDConflict while it has the
// first in the same queue, and one that is enqueued later is not run while the completion of the first is remembered
// ([WithRetention]). If there are no parts or one of them is empty, Enqueue fails: "task ID cannot be empty".
//
// Other producers make the same id of "lockkit:" and the parts, each as its number of bytes, a colon and itself, with slashes
// between them: "lockkit:6:charge/2:42". Where the parts take more than 512 bytes, "sha256:" and the SHA-256 sum of that in
// hex stand for them.
func ID(parts ...string) asynq.Option {
	if len(parts) == 0 || slices.Contains(parts, "") {
		return asynq.TaskID("")
	}
	return asynq.TaskID(idPrefix + core.Key(parts...))
}

// identify returns the key of a task's identity, and whether its completion is recorded. What ID made names the task by
// itself. Producers may give any other id, also a random UUID as asynq makes them, to several tasks: a "charge" and a
// "ship" of one order. They differ in their queue, type or payload, which no delivery of a task changes.
func taskIdentity(id, queue string, t *asynq.Task) (key string, recordsCompletion bool) {
	if strings.HasPrefix(id, idPrefix) {
		return core.Key("queue", "task", id), true
	}

	content := sha256.Sum256([]byte(core.Key(t.Type()) + "/" + string(t.Payload())))
	return core.Key("queue", "task", queue, id, hex.EncodeToString(content[:8])), isUUID(id)
}

// isUUID reports whether an id looks like those that asynq makes up.
func isUUID(id string) bool {
	u, err := uuid.Parse(id)
	if err != nil {
		return false
	}
	return u.Version() == 4 && u.String() == id // Parse also accepts other forms
}

// noKey is the default of WithKey.
func noKey(context.Context, *asynq.Task) (string, error) { return "", nil }
