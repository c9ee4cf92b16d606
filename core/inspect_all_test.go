package core

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// InspectAll returns the states of many keys in their order, as Inspect does for each, with few requests.
func TestInspectAll(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		p, other := w.process(Retention(time.Hour)), w.process()
		held := w.holds(p, "held")
		want := w.complete(w.holds(p, "done"), "result")

		keys := []string{"done", "free", "held", "done"}
		for i := range 300 {
			keys = append(keys, fmt.Sprint("other ", i))
		}
		synctest.Wait()

		before := w.nodes[0].Calls()["TIME"]
		states, err := other.InspectAll(t.Context(), keys...)
		if err != nil || len(states) != len(keys) {
			t.Fatalf("%d states, %v; want %d", len(states), err, len(keys))
		}
		if n := w.nodes[0].Calls()["TIME"] - before; n > 3 {
			t.Errorf("%d requests to a node for %d keys, want at most 3", n, len(keys))
		}

		for i, key := range keys {
			s := states[i]
			isHeld, isDone := s.Holder != nil, s.Record != nil
			if isHeld != (key == "held") || isDone != (key == "done") || len(s.Nodes) != len(w.nodes) {
				t.Errorf("%s: %+v", key, s)
			}
		}
		if states[2].Holder.Token != held.FencingToken() || string(states[0].Record.Result) != string(want.Result) {
			t.Errorf("%+v, %+v", states[2].Holder, states[0].Record)
		}

		// Each state has its own nodes.
		states[0].Nodes[0].Addr = "changed"
		if states[1].Nodes[0].Addr == "changed" {
			t.Error("two states share their nodes")
		}
	})
}

// InspectAll of no keys returns no states. An invalid key is named, and nothing is asked.
func TestInspectAllOfInvalidKeys(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		before := w.nodes[0].Calls()["TIME"]
		if states, err := p.InspectAll(t.Context()); states != nil || err != nil {
			t.Errorf("of no keys: %v, %v", states, err)
		}

		states, err := p.InspectAll(t.Context(), "good", strings.Repeat("x", 600))
		if states != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%v, %v; want ErrInvalid", states, err)
		}
		if n := w.nodes[0].Calls()["TIME"] - before; n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// If no quorum answers, the error of InspectAll names the first key without one, and the states have the answers that
// there are. A value that cannot be read costs its own key only.
func TestInspectAllWithoutAQuorum(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.holds(p, "held")
		for i := range 2 {
			must(w.nodes[i].Exec("HSET", p.e.Keys.Resource("foreign"), "written by", "something else"))
		}

		states, err := p.InspectAll(t.Context(), "held", "foreign", "free")
		op, isOp := errors.AsType[*OpError](err)
		if !isOp || !errors.Is(err, ErrUnavailable) || op.Key != "foreign" || len(op.Nodes) != 3 {
			t.Fatalf("%v; want ErrUnavailable of the key that cannot be read", err)
		}
		if states[0].Holder == nil || states[2].Holder != nil || states[1].Nodes[0].Err == nil || states[1].Nodes[2].Err != nil {
			t.Errorf("%+v", states)
		}

		w.nodes[0].Down()
		w.nodes[1].Down()
		states, err = p.InspectAll(t.Context(), "held", "free")
		op, isOp = errors.AsType[*OpError](err)
		if !isOp || !errors.Is(err, ErrUnavailable) || op.Key != "held" {
			t.Errorf("%v; want ErrUnavailable", err)
		}
		if len(states) != 2 || states[0].Nodes[2].Holder == nil {
			t.Errorf("%+v", states)
		}

		if err := p.Close(t.Context()); err != nil {
			t.Log(err)
		}
		if _, err := p.InspectAll(t.Context(), "held"); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}
