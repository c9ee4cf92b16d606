package core

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
)

// waiting starts a call of Acquire. The returned function returns the time that the call took to get the key, or 0 if
// the call has not got it yet.
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

// queue returns the waiters for key in the queue of node i.
func (w *world) queue(p *process, i int, key string) []any {
	w.t.Helper()
	v := must(w.nodes[i].Exec("ZRANGE", p.e.Keys.Waiters(key), "0", "-1"))
	all, _ := v.([]any)
	return all
}

// A waiter does not contend with a holder that one of three nodes does not know: it sends few requests.
func TestHolderOnABareQuorumIsNotPolled(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(withRenewEvery(5*time.Second)), w.process()
		lease := w.acquire(holder, "k")
		synctest.Wait()
		w.forget(holder, 2, "k")
		asked := p.counting(wire.OpAcquire)
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

// A waiter that has waited for longer than any lease lasts is still the first in the queues.
func TestOldestWaitKeepsItsPlace(t *testing.T) {
	race.SkipSweep(t)
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

// A node's clock that was ahead when the key was released does not keep waiters from the key.
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

// A caller that gives up before the answer to its first request does not stay in the queues.
func TestCancelledInTheFirstRound(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		lease := w.acquire(holder, "k")
		p.set(coretest.Fate{ReplyDelay: 100 * time.Millisecond}, wire.OpAcquire)
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

// Close does not wait for a subscription to a node that hangs.
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

// If a caller gives up while its grant is on the way, the next waiter gets the key.
func TestLeftAtTheMomentOfTheGrant(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		a.set(coretest.Fate{ReplyDelay: 100 * time.Millisecond}, wire.OpAcquire)
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

// An attempt that is taken back restores the place of its call in the queue, even if the grant came too late to count.
func TestPlaceIsGivenBack(t *testing.T) {
	bubbles(t, 3, map[string][]int{"granted first": {1, 2}, "granted late": {0}}, func(t *testing.T, w *world, slow []int) {
		holder, p := w.process(unrenewed), w.process().asksAllFirst()
		lease := w.holds(holder, "k")
		c := w.waits(p, "k")
		for _, i := range slow {
			p.links[i].Set(coretest.Fate{ReplyDelay: 2 * time.Millisecond}, wire.OpAcquire)
		}
		for _, k := range holder.links[1:] {
			k.Set(coretest.Fate{Lose: true}, wire.OpRelease)
		}
		lease.Release(t.Context()) // on node 0
		w.until("node 0 grants the key", func() bool { return w.owner(p, 0, "k") != "" })
		w.until("node 0 has the key back", func() bool { return w.owner(p, 0, "k") == "" })
		if q := w.queue(p, 0, "k"); len(q) != 1 {
			t.Errorf("the queue of node 0, which granted the key alone, is %v", q)
		}
		c.cancel()
	})
}

// A live waiter that missed its turn is notified when another waiter passes it, and gets its place back.
func TestPassedWaiterComesBack(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		lease := w.holds(w.process(), "k")
		first, second := w.waits(w.process(), "k"), w.waits(w.process(), "k")
		w.nodes[0].DropMessages(true)
		w.release(lease)
		time.Sleep(aTurn)
		w.nodes[0].DropMessages(false)
		second.p.e.board.WakeAll()
		w.gets(second, time.Now())
		time.Sleep(aTurn)
		if q := w.queue(first.p, 0, "k"); len(q) != 1 {
			t.Errorf("the queue is %v", q)
		}
		w.handsOff(second.lease, first, 0, time.Millisecond)
		w.release(first.lease)
	})
}

// If the grant of an attempt comes when its call is over, taking it back does not restore the call's place in the
// queue.
func TestPlaceIsNotGivenBackToNobody(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p, other := w.process(unrenewed), w.process().asksAllFirst(), w.process().asksAllFirst()
		lease := w.holds(holder, "k")
		c := w.waits(p, "k")
		w.waits(other, "k")
		other.links[0].Set(coretest.Fate{Lose: true}, wire.OpAcquire)
		p.links[0].Set(coretest.Fate{ReplyDelay: 20 * time.Millisecond}, wire.OpAcquire)
		for _, k := range holder.links[1:] {
			k.Set(coretest.Fate{Lose: true}, wire.OpRelease)
		}
		lease.Release(t.Context()) // on node 0
		w.until("node 0 grants the key", func() bool { return w.owner(p, 0, "k") != "" })
		c.cancel()
		w.until("node 0 has the key back", func() bool { return w.owner(p, 0, "k") == "" })
		if q := w.queue(p, 0, "k"); len(q) != 1 {
			t.Errorf("the queue of node 0 is %v, and one call waits", q)
		}
	})
}

// A notification is for one call, not for its process: the calls of a process that wait for two keys are both served.
func TestWaitsOfOneProcess(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		k, l := w.holds(holder, "k"), w.holds(holder, "l")
		first, second := w.waits(p, "k"), w.waits(p, "l")
		w.handsOff(k, first, 0, time.Millisecond)
		w.handsOff(l, second, 0, time.Millisecond)
	})
}

// A call that no quorum can serve, because dead processes hold the key on one node each until their TTLs end, asks
// again at once at most maxSharedTurns times. Then it pauses as after any other refusal.
func TestTurnThatIsNobodys(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		for i := 1; i < len(w.nodes); i++ {
			dead := w.process()
			if v := askOf(dead.newLease(t.Context(), "k").attempt.newAcquireRound(false), i); v.Verdict != wire.Granted {
				t.Fatalf("node %d: %v %v", i, v.Verdict, v.Err)
			}
		}
		p := w.process()
		asked := p.counting(wire.OpAcquire)
		c := w.waits(p, "k")
		time.Sleep(8 * time.Second)
		if n := asked.Load() / 3; n > maxSharedTurns+8*time.Second.Milliseconds()/20 {
			t.Errorf("asked %d times in 8 s", n)
		}
		w.gets(c, time.Now())
	})
}

// A call that finds the queues full polls for the key.
func TestFullQueue(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		const full = 1024
		p := w.process()
		lease := w.holds(w.process(unrenewed), "k")
		w.waits(w.process(), "k").cancel() // marks the key
		synctest.Wait()
		zset := p.e.Keys.Waiters("k")
		for _, n := range w.nodes {
			for i := range full - 1 {
				if _, err := n.Exec("ZADD", zset, "1", fmt.Sprintf("P nobody %d", i)); err != nil {
					t.Fatal(err)
				}
			}
		}

		last := w.waits(w.process(), "k")
		c := w.waits(p, "k")
		filled := 0
		for i := range w.nodes {
			switch q := w.queue(p, i, "k"); {
			case len(q) > full:
				t.Errorf("%d wait on node %d", len(q), i)
			case len(q) == full:
				filled++
			}
		}
		if filled < quorum.Of(len(w.nodes)) { // the other nodes may not have been needed to refuse the last waiter
			t.Errorf("%d queues have room for %d", filled, full)
		}

		last.cancel()
		w.handsOff(lease, c, 0, ahead*queue.TurnTime+p.p.retryMax)
	})
}
