package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
		if len(outs) != 2 || !outs[0].Contended || !outs[1].Contended {
			t.Errorf("refused, and waited in vain: %+v", outs)
		}
	})
}
