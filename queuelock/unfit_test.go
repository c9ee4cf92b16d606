package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// A task for which no key can be made is not run. Each of its attempts counts a retry, causes an event and is logged.
// Nothing is locked or recorded.
func TestUnfit(t *testing.T) {
	fixed := func(key string, err error) KeyFunc {
		return func(context.Context, *asynq.Task) (string, error) { return key, err }
	}
	long := strings.Repeat("x", 513)
	for name, c := range map[string]struct {
		opt Option
		err string
		do  string // what the log advises
	}{
		"key function fails":  {WithKey(fixed("", errors.New("no such order"))), "key of the task: no such order", "correct the payload or the key function"},
		"field is missing":    {WithKey(ByPayloadField("customer")), `key of the task: payload field "customer": it is missing`, "use Optional"},
		"header is missing":   {WithKey(ByHeader("tenant")), `key of the task: header "tenant" is missing`, "use Optional"},
		"key is too long":     {WithKey(fixed(long, nil)), core.ErrInvalid.Error(), "correct the payload or the key function"},
		"entity is completed": {field("order"), core.ErrDone.Error(), "granted again after that caller's retention"},
	} {
		for retries := range 2 {
			bubbleOf(t, fmt.Sprintf("%s, %d retries", name, retries), func(t *testing.T, r *rig) {
				r.completedByAnother(core.Key("order", "1"))
				var user told
				r.serve(setup{adjust: user.adjust, opts: []Option{c.opt}}, r.works(0))
				info := r.enqueue(order(1), ID("t"), asynq.MaxRetry(retries))
				r.pass(time.Minute)

				got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
				if err != nil || got.State != asynq.TaskStateArchived || got.Retried != retries || !strings.HasPrefix(got.LastErr, "queuelock: not run: ") || !strings.Contains(got.LastErr, c.err) {
					t.Fatalf("%+v, %v", got, err)
				}
				if len(r.ledger.runs) > 0 || r.count(EventNoKey) != retries+1 || r.count(EventDuplicate) != 0 || r.logs.Count("level=ERROR", "queuelock: a task cannot be run", c.do) != retries+1 || len(user.handled) != retries+1 {
					t.Errorf("%+v, %v, %+v\n%s", &r.ledger, r.events.Counts(), &user, r.logs.Lines())
				}
				if _, err := r.locker().TryAcquire(t.Context(), core.Key("queue", "task", theID)); err != nil {
					t.Errorf("locked or recorded: %v", err)
				}
			})
		}
	}
}

// asynq cannot store an error that is not UTF-8, and would keep the task until its lease ends. So errors about a
// payload of arbitrary bytes are UTF-8.
func TestUnfitPayloadOfAnyBytes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order")}}, r.works(0))
		info := r.enqueue(asynq.NewTask("task", []byte("{\"order\":[\"\xff\"]}")))
		r.pass(10 * time.Second)
		got, err := r.inspector.GetTaskInfo(info.Queue, info.ID)
		if err != nil || got.State != asynq.TaskStateRetry || !strings.Contains(got.LastErr, "it must be a string") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// completedByAnother makes another process complete the key.
func (r *rig) completedByAnother(key string) {
	r.t.Helper()
	must0(r.t, must(r.locker().Acquire(r.t.Context(), key, core.Retention(time.Hour))).Complete(r.t.Context(), nil))
}
