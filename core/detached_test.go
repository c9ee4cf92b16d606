package core

import (
	"context"
	"errors"
	"testing"
	"time"
)

// With Detached the caller's context bounds the wait, and not the lease, which keeps its values.
func TestDetached(t *testing.T) {
	type key struct{}
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process(patient)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		lease := w.awaitUnder(ctx, p, "k", Detached(true))
		waiting, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		if _, err := other.Acquire(waiting, "k", Detached(true)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait ended with %v", err)
		}
		cancel()
		time.Sleep(time.Minute)
		wantValid(t, lease)
		if lease.Context().Value(key{}) != "value" {
			t.Error("the caller's values are gone")
		}
		w.release(lease)
		if d := w.freeAfter(other, "k"); d != 0 {
			t.Errorf("free only %v later", d)
		}
	})
}
