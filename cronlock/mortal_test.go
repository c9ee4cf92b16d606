package cronlock

import (
	"context"
	"testing"
	"time"
)

// mortal starts a replica that dies when die is called: to the nodes, that is, from which it is cut off for good.
func (w *world) mortal(name string, opts ...Option) (r *replica, die func()) {
	w.t.Helper()
	locks, link := w.wired()
	return w.replicaOn(name, locks, opts...), link.Kill
}

// attemptsInOrder checks that the runs are those of the first attempts at a tick, each with a greater fencing token than
// the one before.
func attemptsInOrder(t *testing.T, runs []ran) {
	t.Helper()
	for i, r := range runs {
		if r.Attempt != i+1 {
			t.Errorf("run %d is attempt %d", i+1, r.Attempt)
		}
		if i > 0 && r.FencingToken <= runs[i-1].FencingToken {
			t.Errorf("attempt %d has fencing token %d, the one before %d", i+1, r.FencingToken, runs[i-1].FencingToken)
		}
	}
}

// ended waits for the context to end, and returns when and why.
func ended(ctx context.Context) (time.Time, error) {
	<-ctx.Done()
	return time.Now(), context.Cause(ctx)
}
