package queue

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/lockkit/lockkit/testutil"
)

// A caller that gets the turn while it leaves passes it on.
func TestTurnComesWhileLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		for i := range 200 {
			q := NewLocalQueue(0, func(int) int { return 0 })
			q.TryEnter("k")
			entered := make(chan bool, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { entered <- q.Enter(ctx, nil, "k", &Turn{}) }()
			synctest.Wait()
			// Both happen before the waiter runs, in either order.
			if i%2 == 0 {
				q.PassOn("k")
				cancel()
			} else {
				cancel()
				q.PassOn("k")
			}
			if testutil.Receive(t, entered) {
				taken++
				q.PassOn("k")
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

// If the request of a turn was sent, even a caller that leaves takes the turn, because it must end the attempt.
func TestTurnThatAskedIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewLocalQueue(0, func(int) int { return 0 })
		q.TryEnter("k")
		entered := make(chan bool, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { entered <- q.Enter(ctx, nil, "k", &Turn{}) }()
		synctest.Wait()
		next := q.PassToNext("k")
		next.Requested = true
		cancel()
		synctest.Wait()
		close(next.Ready)
		if !testutil.Receive(t, entered) {
			t.Error("nobody has what was asked")
		}
		q.PassOn("k")
	})
}

// lineUp starts callers that wait in line for a key, and returns when all are in line. giveUp makes them give up. Each
// caller sends to entered whether it has the turn.
func lineUp(t *testing.T, q *LocalQueue[int], key string, callers int) (giveUp func(), entered chan bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	entered = make(chan bool, callers)
	for range callers {
		go func() { entered <- q.Enter(ctx, nil, key, &Turn{}) }()
	}
	testutil.Await(t, "all are in line", func() bool {
		q.mu.RLock()
		defer q.mu.RUnlock()
		inLine := 0
		for _, turn := range q.queues[key].waiters {
			if !turn.isAbandoned() {
				inLine++
			}
		}
		return inLine == callers
	})
	return cancel, entered
}

// A caller that gives up does not wait for the lock of all keys. Blocker does not wait for readers of that lock.
func TestGivingUpTakesNoLock(t *testing.T) {
	q := NewLocalQueue(0, func(int) int { return 0 })
	q.TryEnter("k")
	giveUp, entered := lineUp(t, q, "k", 100)
	q.mu.Lock()
	giveUp()
	for range 100 {
		if testutil.Receive(t, entered) {
			t.Error("has the turn of another")
		}
	}
	q.mu.Unlock()
	q.mu.RLock()
	defer q.mu.RUnlock()
	why := make(chan int)
	go func() { why <- q.Blocker("k") }()
	testutil.Receive(t, why)
}

// The turn skips all callers that have given up, however many, and goes to the next one.
func TestTurnPassesThoseThatGaveUp(t *testing.T) {
	q := NewLocalQueue(0, func(int) int { return 0 })
	q.TryEnter("k")
	for _, callers := range []int{1, maxPops - 1, maxPops, maxPops + 1, 5*maxPops + 3} {
		giveUp, gone := lineUp(t, q, "k", callers)
		giveUp()
		for range callers {
			testutil.Receive(t, gone)
		}
		_, entered := lineUp(t, q, "k", 1)
		q.PassOn("k")
		if !testutil.Receive(t, entered) {
			t.Errorf("%d callers gave up, and the one behind them has no turn", callers)
		}
		if n := len(q.queues["k"].waiters); n != 0 {
			t.Errorf("%d callers are left in line", n)
		}
	}

	giveUp, gone := lineUp(t, q, "k", 2*maxPops)
	giveUp()
	for range 2 * maxPops {
		testutil.Receive(t, gone)
	}
	if next := q.PassToNext("k"); next != nil {
		t.Error("one that gave up has the turn")
	}

	q.PassOn("k")
	if len(q.queues) != 0 {
		t.Error("the line is kept though nobody has the turn")
	}
}

// The number of kept turns of callers that gave up is bounded.
func TestLineForgetsThoseThatGaveUp(t *testing.T) {
	q := NewLocalQueue(0, func(int) int { return 0 })
	q.TryEnter("k")
	lineUp(t, q, "k", 1) // keeps waiting before the others
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10_000 {
		q.Enter(gone, nil, "k", &Turn{})
	}
	if n := len(q.queues["k"].waiters); n != 1 {
		t.Errorf("%d turns are kept, of one caller that waits", n)
	}
	// These callers give up as if the lock was taken.
	for range 10 * sweepEvery {
		var one Turn
		q.join("k", &one)
		one.resolve(turnAbandoned)
	}
	if n := len(q.queues["k"].waiters); n > sweepEvery {
		t.Errorf("%d turns are kept, of one caller that waits", n)
	}
}
