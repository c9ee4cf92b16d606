package queuelock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/testutil"
)

// No task gets the identity of another task by its id or its queue, and no identity is too long. Tasks with the same ID
// are one task in all queues.
func TestKeysCannotBeForged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		tasks := map[string]string{} // by identity
		long := strings.Repeat("x", 600)
		ids := []string{"a", "a/1:b", "a/1:b/0:", "ab", "a/b", "1:a", "0:", "b", "b/1:c", long, long + "x", "sha256:" + strings.Repeat("0", 64)}
		queues := []string{"default", "default/1:a", "a"}
		adjust := func(c *asynq.Config) { c.Queues = map[string]int{queues[0]: 1, queues[1]: 1, queues[2]: 1} }

		r.serve(setup{adjust: adjust}, func(ctx context.Context, _ *asynq.Task) error {
			mu.Lock()
			defer mu.Unlock()
			queue, _ := asynq.GetQueueName(ctx)
			name := fmt.Sprintf("%q %q", queue, taskID(ctx))
			run, _ := FromContext(ctx)
			if other, taken := tasks[run.Identity]; taken || len(run.Identity) > 512 {
				t.Errorf("%.100s has %.100q, of %.100s", name, run.Identity, other)
			}
			tasks[run.Identity] = name
			return nil
		})

		for _, queue := range queues {
			for _, id := range ids {
				r.enqueue(asynq.NewTask("task", nil), asynq.TaskID(id), asynq.Queue(queue))
				r.enqueue(asynq.NewTask("task", nil), ID(id), asynq.Queue(queue))
			}
			r.enqueue(asynq.NewTask("task", nil), asynq.Queue(queue))
		}

		r.pass(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if n := len(ids)*len(queues) + len(ids) + len(queues); len(tasks) != n || r.count(EventDuplicate) != 2*len(ids) {
			t.Errorf("%d identities of %d tasks, events %v", len(tasks), n, r.events.Counts())
		}
	})
}

// ID makes ids that producers in other languages can make as well. It makes no id without parts or from an empty part.
func TestID(t *testing.T) {
	for _, c := range []struct {
		parts []string
		want  string
	}{
		{[]string{"charge", "42"}, "lockkit:6:charge/2:42"},
		{[]string{"caf\u00e9"}, "lockkit:5:caf\u00e9"},
		{[]string{strings.Repeat("x", 508)}, "lockkit:508:" + strings.Repeat("x", 508)},
		{[]string{strings.Repeat("x", 509)}, fmt.Sprintf("lockkit:sha256:%x", sha256.Sum256([]byte("509:"+strings.Repeat("x", 509))))},
		{nil, ""},
		{[]string{"charge", ""}, ""},
	} {
		if got := ID(c.parts...); got.Type() != asynq.TaskIDOpt || got.Value() != c.want {
			t.Errorf("%.50q: %v", c.parts, got)
		}
	}
	_, err := asynq.NewClientFromRedisClient(testutil.NewNodes(t, 1)[0].Client()).Enqueue(asynq.NewTask("charge", nil), ID("charge", ""))
	if err == nil || !strings.Contains(err.Error(), "task ID cannot be empty") {
		t.Error(err)
	}
}

// Completions are remembered for tasks whose id is like asynq's own, or made by ID.
func TestRemembers(t *testing.T) {
	own := "3f0c1e9a-6d5b-4c1e-9f6a-0123456789ab"
	for id, want := range map[string]bool{
		own: true, ID("a").Value().(string): true,
		strings.ToUpper(own): false, "urn:uuid:" + own: false, "{" + own + "}": false, strings.ReplaceAll(own, "-", ""): false,
		"018f0c1e-9a6d-7b4c-9e9f-6a0123456789": false, // version 7: not made by asynq
		"":                                     false, "charge:42": false, "locket": false,
	} {
		if _, got := taskIdentity(id, "default", order(1)); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}

func TestByPayloadField(t *testing.T) {
	for _, c := range []struct {
		path    []string
		payload string
		want    string // after "!": a part of the error
	}{
		{[]string{"id"}, `{"id":42}`, core.Key("id", "42")},
		{[]string{"id"}, `{"id":"42"}`, core.Key("id", "42")},
		{[]string{"id"}, `{"id": 12345678901234567890 }`, core.Key("id", "12345678901234567890")},
		{[]string{"id"}, `{"id":true}`, core.Key("id", "true")},
		{[]string{"id"}, `{"id":"a\u0062"}`, core.Key("id", "ab")},
		{[]string{"order", "id"}, `{"order":{"id":7}}`, core.Key("order.id", "7")},
		{[]string{"id"}, `{"ID":42}`, "!missing"},
		{[]string{"id"}, `{"id":null}`, "!missing"},
		{[]string{"order", "id"}, `{"order":null}`, "!missing"},
		{[]string{"id"}, `{"id":""}`, "!must be"},
		{[]string{"id"}, `{"id":[1]}`, "!must be"},
		{[]string{"id"}, `{"id":{"a":1}}`, "!must be"},
		{[]string{"id"}, `[1]`, "!the document is not a JSON object"},
		{[]string{"id"}, ``, "!missing"},
		{[]string{"id"}, `null`, "!missing"},
		{[]string{"order", "id"}, `{"order":7}`, `!"order" is not a JSON object`},
	} {
		got, err := ByPayloadField(c.path...)(t.Context(), asynq.NewTask("task", []byte(c.payload)))
		if fault, ok := strings.CutPrefix(c.want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), fault) {
				t.Errorf("%v of %s: %q, %v", c.path, c.payload, got, err)
			}
		} else if got != c.want || err != nil {
			t.Errorf("%v of %s: %q, %v", c.path, c.payload, got, err)
		}

		none := c.want == "!missing" // Optional accepts a missing field
		switch got, err := Optional(ByPayloadField(c.path...))(t.Context(), asynq.NewTask("task", []byte(c.payload))); {
		case none && (got != "" || err != nil), !none && got != strings.TrimPrefix(c.want, "!") && err == nil:
			t.Errorf("%v of %s, optional: %q, %v", c.path, c.payload, got, err)
		}
	}
}

func TestByHeader(t *testing.T) {
	task := asynq.NewTaskWithHeaders("task", nil, map[string]string{"tenant": "t1"})
	if got, err := ByHeader("tenant")(t.Context(), task); got != core.Key("tenant", "t1") || err != nil {
		t.Error(got, err)
	}
	if got, err := ByHeader("order")(t.Context(), task); err == nil {
		t.Error(got)
	}
	if got, err := Optional(ByHeader("order"))(t.Context(), task); got != "" || err != nil {
		t.Error(got, err)
	}
}

// Misuse is an error that says what to do, and loses no task.
func TestMisuse(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var user told
		m := r.middleware(r.locker())
		wantFaults(t, m.Middleware(asynq.NotFoundHandler()).ProcessTask(t.Context(), order(1)), "test handlers without the middleware")

		stripped := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			return m.Middleware(asynq.NotFoundHandler()).ProcessTask(context.WithoutCancel(ctx), task)
		})
		r.serve(setup{bare: true, adjust: only("stripped")}, stripped)
		without := r.enqueue(order(1), asynq.Queue("stripped"))
		r.serve(setup{adjust: user.adjust, opts: nil}, func(ctx context.Context, task *asynq.Task) error {
			return m.Middleware(r.works(0)).ProcessTask(ctx, task)
		})
		info := r.enqueue(order(1), asynq.MaxRetry(0))

		r.pass(10 * time.Second)
		if len(user.handled) != 1 || !strings.Contains(user.handled[0], "two middlewares") || r.state(info) != "archived" {
			t.Errorf("%+v, %s", &user, r.state(info))
		}
		if got, err := r.inspector.GetTaskInfo("stripped", without.ID); err != nil || !strings.Contains(got.LastErr, "its deadline is gone") {
			t.Errorf("%+v, %v", got, err)
		}
		for _, said := range []string{"two middlewares are on the way", "no asynq.Server has made this context, or its deadline is gone"} {
			if n := r.logs.Count("level=ERROR", "queuelock: "+said); n != 1 {
				t.Errorf("said %d times\n%s", n, r.logs.Lines())
			}
		}
	})
}

// Type names that are made up at run time do not fill the memory.
func TestForeignTypesAreBounded(t *testing.T) {
	m := must(New(testLocker(t)))
	for i := range 2 * maxForeignTypes {
		d := delivery{Middleware: m, task: asynq.NewTask(fmt.Sprint(i), nil)}
		d.warnOfForeignID(t.Context())
	}
	n := 0
	m.foreignTypes.Range(func(any, any) bool { n++; return true })
	if n != maxForeignTypes {
		t.Errorf("%d types are remembered", n)
	}
}

// The log names the keys of a task as the options do, and has hashes in place of the keys.
func TestLogNamesTheKeys(t *testing.T) {
	var out bytes.Buffer
	l := testLocker(t, core.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
	d := &delivery{Middleware: &Middleware{locker: l}, task: asynq.NewTask("charge", nil), keys: []string{"own", "order"}}
	d.logger(t.Context()).Info("x")
	if !strings.Contains(out.String(), "type=charge") || !strings.Contains(out.String(), "identity_hash=5b3975651c3cab92 key_hash=") || strings.Contains(out.String(), "=order") {
		t.Error(out.String())
	}
}
