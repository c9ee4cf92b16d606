package queuelock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
)

// ranOf returns a handler that counts its runs by type and payload.
func (r *rig) ranOf(ran map[string]int) asynq.HandlerFunc {
	return func(_ context.Context, t *asynq.Task) error {
		r.ledger.mu.Lock()
		defer r.ledger.mu.Unlock()
		ran[t.Type()+" "+string(t.Payload())]++
		return nil
	}
}

// Producers may use the random UUID of an entity as the id of several tasks. Tasks with different queues, types or
// payloads are different tasks, and their completions are remembered.
func TestUUIDOfAnEntity(t *testing.T) {
	for name, c := range map[string]struct{ taskType, payload, queue string }{
		"another queue":   {"task:charge", "1", "other"},
		"another type":    {"task:ship", "1", "default"},
		"another payload": {"task:charge", "2", "default"},
	} {
		bubbleOf(t, name, func(t *testing.T, r *rig) {
			ran, identities := map[string]int{}, map[string]bool{}
			count := r.ranOf(ran)
			adjust := func(cfg *asynq.Config) { cfg.Queues = map[string]int{"default": 1, "other": 1} }
			r.serve(setup{adjust: adjust}, func(ctx context.Context, task *asynq.Task) error {
				run, _ := FromContext(ctx)
				identities[run.Identity] = true
				return count(ctx, task)
			})
			id := asynq.TaskID(uuid.NewString())
			r.enqueue(asynq.NewTask("task:charge", []byte("1")), id)
			r.pass(10 * time.Second)
			r.enqueue(asynq.NewTask(c.taskType, []byte(c.payload)), id, asynq.Queue(c.queue))
			r.pass(10 * time.Second)
			if total := ran["task:charge 1"] + ran["task:ship 1"] + ran["task:charge 2"]; total != 2 || len(identities) != 2 {
				t.Errorf("%v, identities %v", ran, identities)
			}
			if r.count(EventDuplicate)+r.count(EventForeignID) > 0 {
				t.Errorf("%v", r.events.Counts())
			}
		})
	}
}

// A task that is enqueued again with the same id, queue, type and payload is not run, because asynq may have delivered
// one task twice. The log warns if the id is a UUID and no retry was counted. It also warns if a task of another type
// has completed under the same ID.
func TestSuspectDuplicates(t *testing.T) {
	for name, c := range map[string]struct {
		id   asynq.Option
		then string // the type of the second task
		warn string // empty: no warning
	}{
		"a UUID":                {asynq.TaskID(uuid.NewString()), "task:charge", "under an id that is a random UUID"},
		"an ID":                 {ID("order", "7"), "task:charge", ""},
		"an ID of two types":    {ID("order", "7"), "task:ship", "of another type"},
		"an ID of a long type":  {ID("order", "7"), "task:charge:" + strings.Repeat("x", 200), "of another type"},
		"a UUID, after a retry": {nil, "", ""},
	} {
		bubbleOf(t, name, func(t *testing.T, r *rig) {
			ran := map[string]int{}
			p := r.serve(setup{}, r.ranOf(ran))
			// asynq fails to record that the task has completed, and its recoverer counts a retry.
			if c.id == nil {
				p.link.OnRequest(once(isDone))
				r.enqueue(asynq.NewTask("task:charge", nil))
				r.pass(5 * time.Minute)
			} else {
				r.enqueue(asynq.NewTask("task:charge", nil), c.id)
				r.pass(10 * time.Second)
				r.enqueue(asynq.NewTask(c.then, nil), c.id)
				r.pass(10 * time.Second)
			}

			want := 0
			if c.warn != "" {
				want = 1
			}
			if len(ran) != 1 || ran["task:charge "] != 1 || r.count(EventDuplicate) != 1 {
				t.Errorf("%v, %v", ran, r.events.Counts())
			}
			if r.logs.Count("level=WARN", c.warn) != want || r.logs.Count("duplicate delivery of a completed task") != 1-want {
				t.Errorf("%s", r.logs.Lines())
			}
		})
	}
}

// The record keeps a short form of a long type. The same long type does not count as another type.
func TestDuplicateOfALongType(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ran := map[string]int{}
		r.serve(setup{}, r.ranOf(ran))
		for range 2 {
			r.enqueue(asynq.NewTask("task:"+strings.Repeat("x", 200), nil), ID("order", "7"))
			r.pass(10 * time.Second)
		}
		if r.count(EventDuplicate) != 1 || r.logs.Count("level=WARN") > 0 {
			t.Errorf("%v\n%s", r.events.Counts(), r.logs.Lines())
		}
	})
}
