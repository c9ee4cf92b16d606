package queuelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

func TestKeysCannotBeForged(t *testing.T) {
	long := strings.Repeat("x", 600)
	sets := [][]string{{"a", "b"}, {"a/1:b"}, {"a", "b", ""}, {"", "a", "b"}, {"ab"}, {"a/b"}, {"1:a", "b"}, {""}, {"", ""},
		{"a", "b", "c"}, {"a", "b/1:c"}, {long}, {long, ""}, {"", long}, {long + "x"}, {"sha256:" + strings.Repeat("0", 64)}}
	seen := map[string][]string{}
	for _, kind := range []string{taskKeys, identityKeys, entityKeys} {
		for _, parts := range sets {
			key := delimited(kind, parts...)
			if len(key) > maxKeyLen || !strings.HasPrefix(key, kind) {
				t.Errorf("%.40q: %d bytes", key, len(key))
			}
			if other, ok := seen[key]; ok {
				t.Errorf("%.40q and %.40q make the same key", parts, other)
			}
			seen[key] = parts
		}
	}
	if key := delimited(taskKeys, "default", long); key != delimited(taskKeys, "default", long) || !strings.HasPrefix(key, "queue/task/sha256:") {
		t.Error(key)
	}
}

func FuzzKeys(f *testing.F) {
	f.Add("a", "b", "a/1:b", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		x, y := delimited(taskKeys, a, b), delimited(taskKeys, c, d)
		if (x == y) != (a == c && b == d) {
			t.Errorf("%q %q and %q %q: %q and %q", a, b, c, d, x, y)
		}
	})
}

func TestByPayloadField(t *testing.T) {
	for _, c := range []struct {
		path    []string
		payload string
		want    string // with "!" an error that says so
	}{
		{[]string{"id"}, `{"id":42}`, "id=42"},
		{[]string{"id"}, `{"id":"42"}`, "id=42"},
		{[]string{"id"}, `{"id": 12345678901234567890 }`, "id=12345678901234567890"},
		{[]string{"id"}, `{"id":true}`, "id=true"},
		{[]string{"id"}, `{"id":"a\u0062"}`, "id=ab"},
		{[]string{"order", "id"}, `{"order":{"id":7}}`, "order.id=7"},
		{[]string{"id"}, `{"ID":42}`, "!missing"},
		{[]string{"id"}, `{"id":null}`, "!must be"},
		{[]string{"id"}, `{"id":""}`, "!must be"},
		{[]string{"id"}, `{"id":[1]}`, "!must be"},
		{[]string{"id"}, `{"id":{"a":1}}`, "!must be"},
		{[]string{"id"}, `[1]`, "!cannot be looked up"},
		{[]string{"id"}, ``, "!cannot be looked up"},
		{[]string{"order", "id"}, `{"order":7}`, "!cannot be looked up"},
		{nil, `{"id":42}`, "!must be"},
	} {
		got, err := ByPayloadField(c.path...)(t.Context(), asynq.NewTask("task", []byte(c.payload)))
		if fault, ok := strings.CutPrefix(c.want, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), fault) {
				t.Errorf("%v of %s: %q, %v", c.path, c.payload, got, err)
			}
		} else if got != c.want || err != nil {
			t.Errorf("%v of %s: %q, %v", c.path, c.payload, got, err)
		}
	}
}

func TestByHeader(t *testing.T) {
	task := asynq.NewTaskWithHeaders("task", nil, map[string]string{"tenant": "t1"})
	if got, err := ByHeader("tenant")(t.Context(), task); got != "tenant=t1" || err != nil {
		t.Error(got, err)
	}
	if got, err := ByHeader("order")(t.Context(), task); err == nil {
		t.Error(got)
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
	for _, stamped := range []bool{false, true} {
		t.Run(fmt.Sprintf("stamped=%v", stamped), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{}, func(ctx context.Context, _ *asynq.Task) error {
					return r.ledger.run("t", func() error { return nil })
				})
				for range 3 {
					headers := map[string]string{"mine": "1"}
					if stamped {
						headers = Stamp(headers)
					}
					r.enqueue(asynq.NewTaskWithHeaders("task", nil, headers), asynq.TaskID("t"))
					r.pass(time.Minute)
				}
				want, suppressed := 1, 2
				if stamped {
					want, suppressed = 3, 0
				}
				if r.ledger.runs["t"] != want || r.events.count(EventDuplicate) != suppressed {
					t.Errorf("ran %d times, events %v", r.ledger.runs["t"], r.events.n)
				}
				if got := r.logs.count("WARN queuelock: if this was a new task"); got != min(suppressed, 1) {
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
	})
}

// Types made up at run time do not fill the memory.
func TestNamesAreBounded(t *testing.T) {
	r, err := New(testLocker(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxTypes {
		typ := fmt.Sprintf("type%d", i)
		if name := r.names.of(typ); (name == typ) != (i < maxTypes) {
			t.Errorf("type %d has the name %s", i, name)
		}
	}
	if len(r.names.known) != maxTypes || r.names.of("type0") != "type0" || r.names.of("new") != "other" {
		t.Errorf("%d names", len(r.names.known))
	}
}
