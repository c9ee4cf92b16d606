package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An observer learns how a wait came to its end: the place in the queue, and what made the call ask again.
func TestObservedWaiting(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		holder, a, b := w.process(), w.process(WithObserver(o.observer())), w.process(WithObserver(o.observer()))
		lease := w.holds(holder, "k")
		first, second := w.waits(a, "k"), w.waits(b, "k")
		released := time.Now()
		w.release(lease)
		w.gets(first, released)
		time.Sleep(2 * aTurn) // b asks, in case that a is dead
		for _, n := range w.nodes {
			n.DropMessages(true)
		}
		w.release(first.lease)
		w.gets(second, released)
		w.release(second.lease)
		w.release(w.acquire(a, "free"))
		synctest.Wait()
		_, outs := o.of(t, OpAcquire)
		if out := outs[0]; out.Waited != WaitedTold {
			t.Errorf("told, as the first: %+v", out)
		}
		if out := outs[1]; out.Waited != WaitedPolled {
			t.Errorf("not told, as the second: %+v", out)
		}
		if out := outs[2]; out.Waited != "" {
			t.Errorf("nobody was in the way: %+v", out)
		}
	})
}

// Nobody is told while the key is held, and what keeps a call from it is said however the call ends.
func TestObservedRefusals(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		p := w.process(WithObserver(o.observer()))
		w.holds(w.process(), "k")
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(3*time.Second, func() { cancel(errors.New("the user left")) })
		_, err = p.Acquire(ctx, "k")
		wantErr(t, err, context.Canceled)
		if op, _ := errors.AsType[*OpError](err); op.RetryAfter != 0 || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "context canceled: the user left: node ") {
			t.Errorf("a caller that gave up is told %q, to retry after %v", err, op.RetryAfter)
		}
		synctest.Wait()
		_, outs := o.of(t, OpAcquire)
		if len(outs) != 2 || !outs[0].Contended || !outs[1].Contended || outs[1].Waited != "" {
			t.Errorf("refused, and waited in vain: %+v", outs)
		}
	})
}
