package queuelock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// No task takes the key of another by its id, its queue, its execution id or its identity, and none has a key that is too
// long.
func TestKeysCannotBeForged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		tasks := map[string]string{} // by identity
		note := func(ctx context.Context, task *asynq.Task) error {
			mu.Lock()
			defer mu.Unlock()
			queue, _ := asynq.GetQueueName(ctx)
			name := fmt.Sprintf("%q %q %q %q", queue, taskID(ctx), task.Headers(), task.Payload())
			e, _ := FromContext(ctx)
			if other, taken := tasks[e.Identity]; taken || len(e.Identity) > 512 {
				t.Errorf("%.100s has %.100q, of %.100s", name, e.Identity, other)
			}
			tasks[e.Identity] = name
			return nil
		}
		long := strings.Repeat("x", 600)
		ids := []string{"a", "a/1:b", "a/1:b/0:", "ab", "a/b", "1:a", "0:", "a/1:b/1:c", "b", "b/1:c", long, long + "x", "sha256:" + strings.Repeat("0", 64)}
		queues := []string{"default", "default/1:a", "a"}
		of := func(c *asynq.Config) { c.Queues = map[string]int{queues[0]: 1, queues[1]: 1, queues[2]: 1} }
		r.serve(setup{adjust: of}, note)
		tell := func(_ context.Context, t *asynq.Task) (string, error) { return string(t.Payload()), nil }
		r.serve(setup{adjust: only("identities"), opts: []Option{WithIdentity(tell)}}, note)
		all := func(enqueue func(id, queue string)) {
			for _, id := range ids {
				for _, queue := range queues {
					enqueue(id, queue)
				}
			}
			r.pass(time.Minute) // the ids are free again
		}
		for _, execution := range []string{"", "b", "b/0:", long} {
			all(func(id, queue string) {
				r.enqueue(asynq.NewTaskWithHeaders("task", nil, map[string]string{ExecutionHeader: execution}), asynq.TaskID(id), asynq.Queue(queue))
			})
		}
		all(func(id, queue string) {
			r.enqueue(asynq.NewTask("task", []byte(queue+"/"+id)), asynq.Queue("identities"))
		})
		mu.Lock()
		defer mu.Unlock()
		if n := len(ids) * len(queues) * 5; len(tasks) != n || r.count(EventDuplicate) > 0 {
			t.Errorf("%d identities of %d tasks, events %v", len(tasks), n, r.events.Counts())
		}
	})
}

// What a task works on is locked by the key as it is: a task and a call of core exclude each other, and share tokens.
func TestKeyIsSharedWithCore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		key := core.Key("order.id", "42")
		var tokens []uint64
		r.serve(setup{opts: []Option{WithKey(ByPayloadField("order", "id")), WithWait(time.Minute)}}, func(ctx context.Context, _ *asynq.Task) error {
			return r.ledger.run(key, func() error {
				e, _ := FromContext(ctx)
				tokens = append(tokens, e.FencingToken)
				time.Sleep(10 * time.Second)
				return nil
			})
		})
		l := r.locker()
		for i := range 3 {
			r.enqueue(asynq.NewTask("task", []byte(`{"order":{"id":42}}`)), asynq.TaskID(fmt.Sprint(i)))
			r.pass(5 * time.Second) // the task runs
			if err := l.TryDo(t.Context(), key, func(context.Context) error { return nil }); !errors.Is(err, core.ErrHeld) {
				t.Errorf("beside a task: %v", err)
			}
			err := l.Do(t.Context(), key, func(ctx context.Context) error {
				return r.ledger.run(key, func() error {
					lease, _ := core.FromContext(ctx)
					tokens = append(tokens, lease.FencingToken())
					r.enqueue(asynq.NewTask("task", []byte(`{"order":{"id":"42"}}`)))
					r.pass(20 * time.Second)
					return nil
				})
			})
			if err != nil {
				t.Error(err)
			}
			r.pass(30 * time.Second)
		}
		if n := r.ledger.done[key]; n != 9 || r.ledger.overlaps > 0 || !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != n {
			t.Errorf("%d of 9 have run, %d overlaps, tokens %d", n, r.ledger.overlaps, tokens)
		}
	})
}

func TestByPayloadField(t *testing.T) {
	for _, c := range []struct {
		path    []string
		payload string
		want    string // with "!" an error that says so
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
		none := c.want == "!missing" // where the field is optional
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

// A task without a key is not run, is retried like any that failed, and nothing is locked.
func TestKeyFails(t *testing.T) {
	failure := errors.New("no key")
	fails := func(context.Context, *asynq.Task) (string, error) { return "", failure }
	empty := func(context.Context, *asynq.Task) (string, error) { return "", nil }
	for _, c := range []struct {
		name string
		opt  Option
		runs bool
	}{{"key fails", WithKey(fails), false}, {"no key", WithKey(empty), true}, {"identity fails", WithIdentity(fails), false}, {"no identity", WithIdentity(empty), false}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var user told
				r.serve(setup{adjust: user.adjust, opts: []Option{c.opt}}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, time.Second) })
				info := r.enqueue(order(1), asynq.MaxRetry(1))
				r.pass(time.Minute)
				if c.runs {
					if r.ledger.done[info.ID] != 1 {
						t.Errorf("%+v", &r.ledger)
					}
					return
				}
				if len(r.ledger.runs) != 0 || r.state(info) != "archived" || len(user.handled) != 2 {
					t.Errorf("%+v, %s, %+v", &r.ledger, r.state(info), &user)
				}
			})
		})
	}
}

// An id that is used again is another task if it is stamped; else it counts as the same, and that is said.
func TestReusedIDs(t *testing.T) {
	for _, c := range []struct {
		name                   string
		headers                func(map[string]string) map[string]string
		runs, suppressed, said int
	}{
		{"stamped", Stamp, 3, 0, 0},
		{"not stamped", func(h map[string]string) map[string]string { return h }, 1, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
				for range 3 {
					r.enqueue(asynq.NewTaskWithHeaders("task", nil, c.headers(map[string]string{"mine": "1"})), asynq.TaskID("t"))
					r.pass(time.Minute)
				}
				if r.ledger.runs["t"] != c.runs || r.count(EventDuplicate) != c.suppressed {
					t.Errorf("ran %d times, events %v", r.ledger.runs["t"], r.events.Counts())
				}
				if got := r.logs.count("a new task under an id that was used before needs a stamp"); got != c.suppressed {
					t.Errorf("a stamp is asked for %d times:\n%s", got, &r.logs)
				}
				if got := r.logs.count("WARN queuelock: tasks of this type have ids"); got != c.said || r.count(EventUnstamped) != c.said {
					t.Errorf("said %d times:\n%s", got, &r.logs)
				}
			})
		})
	}
}

func TestStamp(t *testing.T) {
	mine := map[string]string{"a": "b"}
	one, two := Stamp(mine), Stamp(nil)
	if len(mine) != 1 || one["a"] != "b" || one[ExecutionHeader] == "" || one[ExecutionHeader] == two[ExecutionHeader] {
		t.Error(mine, one, two)
	}
}

// Misuse is an error that says what to do, and loses nothing.
func TestMisuse(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var user told
		runner := r.runner(r.locker())
		if err := runner.Middleware(asynq.NotFoundHandler()).ProcessTask(t.Context(), order(1)); err == nil || !strings.Contains(err.Error(), "without the middleware") {
			t.Error(err)
		}
		r.serve(setup{adjust: user.adjust, opts: nil}, func(ctx context.Context, task *asynq.Task) error {
			return runner.Middleware(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })).ProcessTask(ctx, task)
		})
		info := r.enqueue(order(1), asynq.MaxRetry(0))
		r.pass(10 * time.Second)
		if len(user.handled) != 1 || !strings.Contains(user.handled[0], "in use twice") || r.state(info) != "archived" {
			t.Errorf("%+v, %s", &user, r.state(info))
		}
		if n := r.logs.count("ERROR queuelock: the middleware is in use twice"); n != 1 {
			t.Errorf("said %d times\n%s", n, &r.logs)
		}
	})
}

// Types made up at run time do not fill the memory.
func TestNamesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var (
			mu    sync.Mutex
			tasks = map[string]int{} // by the name that observers see
		)
		r.locks = r.locks.Replica(core.WithObserver(core.Observer{Start: func(ctx context.Context, op core.Op) (context.Context, func(core.Outcome)) {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind == core.OpAcquire {
				tasks[op.Name]++
			}
			return ctx, nil
		}}))
		r.serve(setup{}, func(context.Context, *asynq.Task) error { return nil })
		const types = 300
		for range 2 {
			for i := range types {
				r.enqueue(asynq.NewTask(fmt.Sprintf("task%d", i), nil))
			}
			r.pass(time.Minute)
		}
		if n := tasks["other"]; n != 2*(types-256) {
			t.Errorf("%d tasks under a common name", n)
		}
		delete(tasks, "other")
		for name, n := range tasks {
			if n != 2 {
				t.Errorf("%d tasks under the name %s", n, name)
			}
		}
		if len(tasks) != 256 {
			t.Errorf("%d names", len(tasks))
		}
	})
}

// The log calls the keys of a task what the options call them.
func TestLogNamesTheKeys(t *testing.T) {
	var out bytes.Buffer
	l := testLocker(t, core.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
	d := &delivery{r: &Runner{locker: l}, task: asynq.NewTask("charge", nil), keys: []string{"own", "order"}}
	d.log(t.Context()).Info("x")
	if !strings.Contains(out.String(), "type=charge") || !strings.Contains(out.String(), "identity=own key=order") {
		t.Error(out.String())
	}
}
