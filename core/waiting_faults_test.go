package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// waiting starts a call of Acquire, and returns how long after that it got the key; 0 = it has not.
func (w *world) waiting(ctx context.Context, p *process, key string) (got func() time.Duration) {
	since := time.Now()
	var after time.Duration
	go func() {
		if lease, err := p.Acquire(ctx, key); err == nil {
			after = time.Since(since)
			lease.Release(context.Background())
		}
	}()
	return func() time.Duration {
		synctest.Wait()
		return after
	}
}

// queue is who waits for key on node i.
func (w *world) queue(p *process, i int, key string) []any {
	w.t.Helper()
	v, err := w.nodes[i].Exec("ZRANGE", p.e.keys.tags[0]+"w:"+key, "0", "-1")
	if err != nil {
		w.t.Fatal(err)
	}
	all, _ := v.([]any)
	return all
}

// A holder that a minority of the nodes does not know is waited for, not contended with.
func TestHolderOnABareQuorumIsNotPolled(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(WithRenewEvery(5*time.Second)), w.process()
		lease := w.acquire(holder, "k")
		synctest.Wait()
		w.forget(holder, 2, "k")
		asked := p.counting(acquireScript)
		got := w.waiting(t.Context(), p, "k")
		time.Sleep(3 * time.Second)
		if n := asked.Load(); n > 3*8 {
			t.Errorf("asked the nodes %d times in 3s", n)
		}
		w.release(lease)
		time.Sleep(time.Minute)
		if got() == 0 {
			t.Error("never got the key")
		}
	})
}

// Who has waited for longer than any lease lasts is still the first.
func TestOldestWaitKeepsItsPlace(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, a, b := w.process(), w.process(), w.process()
		lease := w.acquire(holder, "k")
		first := w.waiting(t.Context(), a, "k")
		time.Sleep(40 * time.Second)
		second := w.waiting(t.Context(), b, "k")
		time.Sleep(5 * time.Second)
		both := 0
		for i := range w.nodes {
			if len(w.queue(a, i, "k")) == 2 {
				both++
			}
		}
		if both < 2 {
			t.Errorf("%d nodes have both in their queues", both)
		}
		w.release(lease)
		time.Sleep(time.Minute)
		if first()-40*time.Second > second() {
			t.Errorf("the first got the key after %v, the second, who came 40s later, after %v", first(), second())
		}
	})
}

// A clock that was ahead when the key was released keeps nobody from it.
func TestReleasedWhileTheClockWasAhead(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		lease := w.acquire(holder, "k")
		got := w.waiting(t.Context(), p, "k")
		time.Sleep(time.Second)
		w.nodes[0].StepClock(8 * time.Second)
		w.release(lease)
		w.nodes[0].StepClock(-8 * time.Second)
		time.Sleep(3 * time.Second)
		if got() == 0 {
			t.Errorf("the key is free for 3s, and still kept: %+v", w.resource(p, 0, "k"))
		}
	})
}

// Who leaves before the answer to its first request does not stay in the queues.
func TestCancelledInTheFirstRound(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		lease := w.acquire(holder, "k")
		p.set(fate{replyDelay: 100 * time.Millisecond}, acquireScript)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		p.Acquire(ctx, "k")
		time.Sleep(time.Second)
		for i := range w.nodes {
			if q := w.queue(p, i, "k"); len(q) > 0 {
				t.Errorf("node %d still has it in its queue", i)
			}
		}
		w.release(lease)
	})
}

// Close waits for no subscription to a node that hangs.
func TestCloseWhileSubscribing(t *testing.T) {
	bubble(t, 5, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		lease := w.acquire(holder, "k")
		ctx, cancel := context.WithCancel(t.Context())
		w.waiting(ctx, p, "k")
		time.Sleep(time.Second)
		for _, n := range w.nodes[:2] {
			n.Hang()
			n.BreakSubscriptions()
		}
		time.Sleep(2 * time.Second)
		cancel()
		synctest.Wait()
		lease.Release(t.Context()) // two nodes do not answer
		began := time.Now()
		ctx, cancel = context.WithCancel(context.Background())
		cancel()
		p.Close(ctx)
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("took %v", took)
		}
		for _, n := range w.nodes {
			n.Up()
		}
	})
}

// Who is granted the key and leaves at that moment lets the next one in.
func TestLeftAtTheMomentOfTheGrant(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		a.set(fate{replyDelay: 100 * time.Millisecond}, acquireScript)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		go a.Acquire(ctx, "k")
		time.Sleep(10 * time.Millisecond)
		got := w.waiting(t.Context(), b, "k")
		time.Sleep(time.Minute)
		if got() > 100*time.Millisecond {
			t.Errorf("waited %v", got())
		}
	})
}
