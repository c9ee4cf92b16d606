package core

import (
	"context"
	"testing"
	"time"
)

// Options of a call are for that call.
func TestOptionsOfACall(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		holder, p := w.process(), w.process(WithObserver(o.observer()))
		lease := w.acquire(holder, "k")
		wait, name := MaxWait(3*time.Second), Name("job")
		run := func(context.Context) error { return nil }
		for what, call := range map[string]func() error{
			"Acquire": func() error { _, err := p.Acquire(t.Context(), "k", wait, name); return err },
			"Do":      func() error { return p.Do(t.Context(), "k", run, wait, name) },
			"Once":    func() error { return p.Once(t.Context(), "k", run, wait, name) },
		} {
			began := time.Now()
			wantErr(t, call(), ErrHeld)
			wantBetween(t, what, time.Since(began), 3*time.Second, 3*time.Second)
		}
		wantErr(t, p.TryDo(t.Context(), "k", run, name), ErrHeld)
		w.release(lease)

		short := must(p.TryAcquire(t.Context(), "k", TTL(4*time.Second), unrenewed, name))
		wantBetween(t, "left", short.left(), time.Second, 4*time.Second)
		got := w.await(holder, "k") // nobody renews it
		wantErr(t, short.Lost(), ErrLost)
		w.release(got)

		lease = w.acquire(p, "k") // as the Locker was made
		wantBetween(t, "left", lease.left(), 5*time.Second, p.p.ttl)
		w.release(lease)
		ops, _ := o.of(t, OpAcquire)
		for i, op := range ops {
			if want := "job"; (op.Name == want) != (i < len(ops)-1) {
				t.Errorf("operation %d has the name %q", i, op.Name)
			}
		}
	})
}
