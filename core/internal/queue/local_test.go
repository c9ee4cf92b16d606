package queue

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/lockkit/lockkit/testutil"
)

// Whoever is given the turn while leaving passes it on.
func TestTurnComesWhileLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		for i := range 200 {
			q := NewLocal(0, func(int) int { return 0 })
			q.TryEnter("k")
			entered := make(chan bool, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { entered <- q.Enter(ctx, nil, "k", &Turn{}) }()
			synctest.Wait()
			if i%2 == 0 { // both before the waiter runs, in either order
				q.Leave("k")
				cancel()
			} else {
				cancel()
				q.Leave("k")
			}
			if testutil.Receive(t, entered) {
				taken++
				q.Leave("k")
			}
			if !q.TryEnter("k") {
				t.Fatalf("round %d: the turn is lost", i)
			}
		}
		if taken != 100 {
			t.Errorf("%d of 200 took the turn, want those whose turn came first", taken)
		}
	})
}

// A turn with which the nodes have been asked is taken also by one who leaves: somebody must end what was asked.
func TestTurnThatAskedIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewLocal(0, func(int) int { return 0 })
		q.TryEnter("k")
		entered := make(chan bool, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { entered <- q.Enter(ctx, nil, "k", &Turn{}) }()
		synctest.Wait()
		next := q.Next("k")
		next.Asked = true
		cancel()
		synctest.Wait()
		close(next.Come)
		if !testutil.Receive(t, entered) {
			t.Error("nobody has what was asked")
		}
		q.Leave("k")
	})
}
