package queuelock

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// The longest pattern that a type begins with decides, and its options come on top of those for all types.
func TestForType(t *testing.T) {
	c := newConfig([]Option{
		ForType("mail", WithConflict(Skip), WithWait(time.Second)),
		WithGrace(time.Hour),
		ForType("mail:send:", WithWait(2*time.Second)),
		ForType("mail:se", WithWait(3*time.Second), WithGrace(0)),
		WithWait(time.Minute), // order does not matter
	})
	if err := c.faults.Err("queuelock"); err != nil {
		t.Fatal(err)
	}
	for typ, want := range map[string]policy{
		"charge":       {wait: time.Minute, grace: time.Hour},
		"mai":          {wait: time.Minute, grace: time.Hour},
		"":             {wait: time.Minute, grace: time.Hour},
		"mail":         {wait: time.Second, grace: time.Hour, conflict: Skip},
		"mailing":      {wait: time.Second, grace: time.Hour, conflict: Skip},
		"mail:send":    {wait: 3 * time.Second},
		"mail:sends":   {wait: 3 * time.Second},
		"mail:send:":   {wait: 2 * time.Second, grace: time.Hour},
		"mail:send:no": {wait: 2 * time.Second, grace: time.Hour},
	} {
		got := c.of(typ)
		if got.wait != want.wait || got.grace != want.grace || got.conflict != want.conflict || got.retention != 8*time.Hour {
			t.Errorf("%q: %+v", typ, got)
		}
	}
}

// A mux with two types, one of which does not have the field of the key, runs both.
func TestTypesWithoutTheField(t *testing.T) {
	for name, opts := range map[string][]Option{
		"optional":      {WithKey(Optional(ByPayloadField("order")))},
		"key of a type": {ForType("task:charge", WithKey(ByPayloadField("order")))},
		"other key":     {field("order"), ForType("task:mail", WithKey(ByPayloadField("to")))},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.serve(setup{opts: opts}, func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
				r.take(1)
				mail := r.enqueue(asynq.NewTask("task:mail", []byte(`{"to":"a"}`)), asynq.MaxRetry(0))
				charge := r.enqueue(asynq.NewTask("task:charge", []byte(`{"order":1}`)))
				other := r.enqueue(asynq.NewTask("task:charge", []byte(`{"order":2}`)))
				r.pass(20 * time.Second)
				if r.ledger.done[mail.ID] != 1 || r.ledger.done[other.ID] != 1 || r.ledger.runs[charge.ID] != 0 || r.count(EventUnfit) > 0 {
					t.Errorf("%+v, %s, %v", &r.ledger, r.state(mail), r.events.Counts())
				}
			})
		})
	}
}

// What conflicts mean is for each type to say.
func TestConflictsPerType(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.serve(setup{opts: []Option{field("order"), ForType("task:skip", WithConflict(Skip)), ForType("task:back", WithConflict(ComeBack))}},
			func(ctx context.Context, _ *asynq.Task) error { return r.work(ctx, 0) })
		r.take(1)
		var states []string
		for _, typ := range []string{"task", "task:skip", "task:back"} {
			info := r.enqueue(asynq.NewTask(typ, []byte(`{"order":1}`)))
			r.events.Until(t, "acquire ok", 1)
			r.pass(10 * time.Second)
			states = append(states, r.state(info))
		}
		if states[0] != "active" || states[1] != "gone" || states[2] == "gone" || r.count(EventSkipped) != 1 || r.count(EventContended) == 0 {
			t.Errorf("%v, %v", states, r.events.Counts())
		}
	})
}

// An identity is that of a task of its type, unless it is said to be shared.
func TestIdentityAndType(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []Option
		runs []string
	}{
		{"of a type", []Option{WithIdentity(ByPayloadField("order"))}, []string{"task:charge", "task:mail"}},
		{"shared", []Option{WithSharedIdentity(ByPayloadField("order"))}, []string{"task:charge"}},
		{"of one type, shared by the others", []Option{WithSharedIdentity(ByPayloadField("order")), ForType("task:mail", WithIdentity(ByPayloadField("order")))}, []string{"task:charge", "task:mail"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var ran []string
				seen := map[string]bool{}
				r.serve(setup{opts: c.opts}, func(ctx context.Context, task *asynq.Task) error {
					e, _ := FromContext(ctx)
					ran, seen[e.Identity] = append(ran, task.Type()), true
					return nil
				})
				for range 2 {
					for _, typ := range []string{"task:charge", "task:mail"} {
						r.enqueue(asynq.NewTask(typ, []byte(`{"order":1}`)))
						r.pass(10 * time.Second)
					}
				}
				if !slices.Equal(ran, c.runs) || len(seen) != len(c.runs) || r.count(EventDuplicate) != 4-len(c.runs) {
					t.Errorf("%v have run, under %v, %v", ran, seen, r.events.Counts())
				}
			})
		})
	}
}

// No type and identity together are those of another type, and none is a shared one.
func TestIdentitiesOfTypesCannotBeForged(t *testing.T) {
	tell := func(_ context.Context, t *asynq.Task) (string, error) { return string(t.Payload()), nil }
	of, shared := newConfig([]Option{WithIdentity(tell)}), newConfig([]Option{WithSharedIdentity(tell)})
	keys := map[string]string{}
	parts := []string{"", "a", "1:a", "a/1:a", "0:", "0:/1:a", "identity", "a/"}
	for _, typ := range parts {
		for _, id := range parts[1:] {
			got, err := of.policy.keys(t.Context(), asynq.NewTask(typ, []byte(id)))
			if err != nil || typ == "" {
				continue // asynq has no task without a type
			}
			if name := fmt.Sprintf("%q %q", typ, id); keys[got[0]] != "" {
				t.Errorf("%s has the key of %s", name, keys[got[0]])
			} else {
				keys[got[0]] = name
			}
		}
	}
	for _, id := range parts[1:] {
		got, err := shared.policy.keys(t.Context(), asynq.NewTask("a", []byte(id)))
		if err != nil || keys[got[0]] != "" {
			t.Errorf("shared %q has the key of %s, %v", id, keys[got[0]], err)
		}
	}
}
