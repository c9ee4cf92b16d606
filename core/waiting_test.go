package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// ahead is the maximum number of turns that a call waits for the waiters before it, as in queue.lua.
const ahead = 3

// A caller is a call of Acquire, and its result once it has returned.
type caller struct {
	p      *process
	cancel context.CancelFunc
	done   chan struct{}
	lease  *Lease
	err    error
	at     time.Time // when the call returned
}

// waits starts a call of p that waits for a key. It returns when the call is in the queues and has subscribed.
func (w *world) waits(p *process, key string) *caller {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	c := &caller{p: p, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.lease, c.err = p.Acquire(ctx, key)
		c.at = time.Now()
	}()
	synctest.Wait()

	// The queues order calls by the time at which they began, so the next call must begin later.
	time.Sleep(time.Millisecond)
	return c
}

// holds acquires a key, and returns the lease when all nodes have answered.
func (w *world) holds(p *process, key string) *Lease {
	w.t.Helper()
	lease := w.acquire(p, key)
	synctest.Wait()
	return lease
}

// awaitPlaces waits until one call is in the queues of a quorum of nodes. The other nodes may never be needed to
// refuse it.
func (w *world) awaitPlaces(p *process, key string) {
	w.t.Helper()
	testutil.Await(w.t, "a place in the queues", func() bool {
		places := 0
		for i := range w.nodes {
			places += len(w.queue(p, i, key))
		}
		return places >= quorum.Of(len(w.nodes))
	})
}

// gets waits until the call has its lease, and returns the time from since until then.
func (w *world) gets(c *caller, since time.Time) time.Duration {
	w.t.Helper()
	testutil.Receive(w.t, c.done)
	if c.err != nil {
		w.t.Fatalf("waited in vain: %v", c.err)
	}
	return c.at.Sub(since)
}

// handsOff releases the lease, and checks that the caller gets the key after least at the earliest and most at the
// latest.
func (w *world) handsOff(lease *Lease, to *caller, least, most time.Duration) {
	w.t.Helper()
	released := time.Now()
	w.release(lease)
	wantBetween(w.t, "hand-off", w.gets(to, released), least, most)
}

// waited returns a lease of one process, and a caller of another process that waits for its key.
func (w *world) waited(opts ...Option) (*Lease, *caller) {
	w.t.Helper()
	lease := w.holds(w.process(), "k")
	return lease, w.waits(w.process(opts...), "k")
}

// onNodes runs f once for each number of nodes, as a subtest in a bubble.
func onNodes(t *testing.T, sizes []int, f func(t *testing.T, w *world)) {
	t.Parallel()
	for _, n := range sizes {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) { bubble(t, n, f) })
	}
}

// waitsSilently starts a call that waits, and checks that it sends no request for 700 ms: longer than the pause between
// two retries, but shorter than the fallback. It also returns the counter of its requests.
func (w *world) waitsSilently(p *process) (*caller, *atomic.Int64) {
	w.t.Helper()
	asked := p.counting(wire.OpAcquire)
	c := w.waits(p, "k")
	before := asked.Load()
	time.Sleep(700 * time.Millisecond)
	if n := asked.Load() - before; n > 0 {
		w.t.Errorf("asked %d times while nothing happened", n)
	}
	return c, asked
}

// aTurn is the longest time until the second waiter tries, if the first does not.
const aTurn = queue.TurnTime + queue.NotifyWindow

// A waiter in another process is notified when the key is free, and asks at once. Until then it does not poll.
func TestWokenAtOnce(t *testing.T) {
	onNodes(t, []int{1, 2, 3, 4, 5}, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		lease := w.holds(holder, "k")
		c, asked := w.waitsSilently(p)
		before := asked.Load()
		w.handsOff(lease, c, 0, time.Millisecond)
		if n := asked.Load() - before; n > int64(len(w.nodes)) {
			t.Errorf("%d requests for one hand-off", n)
		}
		w.release(c.lease)
		synctest.Wait()
		for i := range w.nodes {
			if q := w.queue(p, i, "k"); len(q) > 0 {
				t.Errorf("still waits on node %d: %q", i, q)
			}
			if w.resource(p, i, "k").MayHaveWaiter {
				t.Errorf("node %d goes on looking for who waits", i)
			}
		}
	})
}

// No waiter polls for a key whose holder has a quorum, even if the holder does not have all nodes.
func TestNoPollingBesideAMinority(t *testing.T) {
	onNodes(t, []int{3, 5}, func(t *testing.T, w *world) {
		holder, p := w.process(unrenewed), w.process()
		holder.links[0].Set(coretest.Fate{Refuse: true}, wire.OpAcquire)
		lease := w.holds(holder, "k")
		c, _ := w.waitsSilently(p)
		w.handsOff(lease, c, 0, time.Millisecond)
	})
}

// Processes are served in the order in which they began to wait, also if they come back for the key again and again.
func TestServedInOrder(t *testing.T) {
	race.SkipSweep(t)
	onNodes(t, []int{1, 3, 5}, func(t *testing.T, w *world) {
		const crowd, hold, rounds = 8, 5 * time.Millisecond, 4
		holder := w.process()
		lease := w.holds(holder, "k")
		served := make(chan int, crowd*rounds)
		var requests atomic.Int64
		var all sync.WaitGroup
		defer all.Wait()

		for i := range crowd {
			p := w.process()
			p.countHolds(&requests)
			all.Go(func() {
				for range rounds {
					w.holdFor(p, "k", hold, func() { served <- i })
				}
			})
			time.Sleep(20 * time.Millisecond)
		}

		// The first requests do not count: a process that subscribes for the first time asks twice.
		began := requests.Load()
		start := time.Now()
		w.release(lease)
		for n := range crowd * rounds {
			if i := testutil.Receive(t, served); i != n%crowd {
				t.Errorf("the %dth is process %d", n, i)
			}
		}

		took, ideal := time.Since(start), (crowd*rounds-1)*hold
		if took > ideal*115/100 {
			t.Errorf("%d holds of %v took %v", crowd*rounds, hold, took)
		}
		synctest.Wait()
		if each := float64(requests.Load()-began) / float64(crowd*rounds*len(w.nodes)); each > 3.2 {
			t.Errorf("%.2f requests per acquisition and node", each)
		}
	})
}

// countHolds counts the requests of p that acquire and release. From now on they take 0.1 ms each way.
func (p *process) countHolds(n *atomic.Int64) {
	for _, k := range p.links {
		k.Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
			if s == wire.OpAcquire || s == wire.OpRelease {
				n.Add(1)
			}
			return coretest.Fate{Delay: 100 * time.Microsecond, ReplyDelay: 100 * time.Microsecond}
		})
	}
}

// holdFor waits for a key, calls granted, holds the key for d and releases it.
func (w *world) holdFor(p *process, key string, d time.Duration, granted func()) {
	lease, err := p.Acquire(w.t.Context(), key)
	if err != nil {
		w.t.Error(err)
		return
	}
	granted()
	time.Sleep(d)
	lease.Release(w.t.Context())
}

// A waiter whose notifications are all lost gets the key by polling, within the fallback.
func TestLostWakeUp(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		lease, c := w.waited(MaxWait(5 * time.Second))
		for _, n := range w.nodes {
			n.DropMessages(true)
		}
		time.Sleep(100 * time.Millisecond)
		w.handsOff(lease, c, queue.FallbackMin-200*time.Millisecond, queue.FallbackMax)
	})
}

// The notification of a single node is enough.
func TestOneNodeTells(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		lease, c := w.waited()

		// Only the first node that has the call in its queue notifies it. A node that was not needed to refuse the call
		// may not have it there.
		told := false
		for i, n := range w.nodes {
			n.DropMessages(told)
			told = told || len(w.queue(c.p, i, "k")) > 0
		}
		w.handsOff(lease, c, queue.NotifyWindow, queue.NotifyWindow+time.Millisecond)
	})
}

// If a key is released while its refusal is on the way to the caller, the caller asks again at once.
func TestToldBeforeTheRefusal(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		first := w.acquire(holder, "other")
		c := w.waits(p, "other") // p keeps its subscriptions from now on
		w.release(first)
		w.gets(c, time.Now())
		lease := w.holds(holder, "k")
		p.set(coretest.Fate{ReplyDelay: 20 * time.Millisecond}, wire.OpAcquire)
		d := w.waits(p, "k")
		w.handsOff(lease, d, 20*time.Millisecond, 45*time.Millisecond)
	})
}

// A notification that arrives during an attempt is not lost: the waiter asks again after the attempt.
func TestToldDuringATry(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		lease, c := w.waited()
		c.p.set(coretest.Fate{ReplyDelay: 30 * time.Millisecond}, wire.OpAcquire)
		c.p.e.board.WakeAll() // the key is still held, so this attempt is refused
		time.Sleep(10 * time.Millisecond)
		w.handsOff(lease, c, 30*time.Millisecond, 60*time.Millisecond)
	})
}

// A waiter whose subscriptions broke asks as soon as one is restored.
func TestSubscriptionThatBreaks(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		lease, c := w.waited()
		time.Sleep(2 * queue.ResubscribeMax)
		broken := time.Now()
		for _, n := range w.nodes {
			n.BreakSubscriptions()
		}
		w.release(lease)
		wantBetween(t, "hand-off", w.gets(c, broken), 0, queue.ResubscribeMin+time.Millisecond)
	})
}

// A first waiter that is dead delays the second by one turn, and only once.
func TestFirstInTheQueueIsDead(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder, dead, p := w.process(), w.process(), w.process()
		lease := w.holds(holder, "k")
		w.waits(dead, "k")
		c := w.waits(p, "k")
		dead.cut()
		w.handsOff(lease, c, queue.TurnTime, aTurn)
		w.handsOff(c.lease, w.waits(holder, "k"), 0, time.Millisecond)
	})
}

// Two dead waiters delay the third by the rest of the fallback at most.
func TestFirstTwoInTheQueueAreDead(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder := w.process()
		lease := w.holds(holder, "k")
		for range 2 {
			dead := w.process()
			w.waits(dead, "k")
			dead.cut()
		}
		c := w.waits(w.process(), "k")

		// With several nodes, each dead waiter may be in the queues of a bare quorum, and the two quorums may differ.
		turns := 2
		if len(w.nodes) > 1 {
			turns = 1
		}
		w.handsOff(lease, c, time.Duration(turns)*queue.TurnTime, queue.FallbackMax)
	})
}

// A waiter that gives up leaves the queues at once, and the next waiter takes its place.
func TestWaiterThatIsCancelled(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder, first, second := w.process(), w.process(), w.process()
		lease := w.holds(holder, "k")
		c, d := w.waits(first, "k"), w.waits(second, "k")
		c.cancel()
		testutil.Receive(t, c.done)
		wantErr(t, c.err, context.Canceled)
		synctest.Wait()

		left := 0
		for i := range w.nodes {
			q := w.queue(first, i, "k")
			if len(q) > 1 {
				t.Errorf("node %d: %q wait", i, q)
			}
			left += len(q)
		}
		if left < quorum.Of(len(w.nodes)) { // a node that was not needed for the refusal may not have the waiter
			t.Errorf("only %d nodes have the other in their queues", left)
		}
		w.handsOff(lease, d, 0, time.Millisecond)
	})
}

// A waiter that gives up just after its notification passes the turn on.
func TestWaiterIsCancelledWhenTold(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder, first, second, third := w.process(), w.process(), w.process(), w.process()
		lease := w.holds(holder, "k")
		c, d, e := w.waits(first, "k"), w.waits(second, "k"), w.waits(third, "k")
		first.set(coretest.Fate{Delay: 10 * time.Millisecond}, wire.OpAcquire)
		second.set(coretest.Fate{Delay: 10 * time.Millisecond}, wire.OpAcquire)
		released := time.Now()
		w.release(lease)
		c.cancel()
		d.cancel()
		wantBetween(t, "hand-off", w.gets(e, released), 0, aTurn)
	})
}

// A node that was emptied or does not answer delays no waiter.
func TestQueueOnNodesInTrouble(t *testing.T) {
	bubbles(t, 3, map[string]func(n *testutil.Node){
		"emptied": (*testutil.Node).RestartEmpty, "flushed": (*testutil.Node).Flush, "down": (*testutil.Node).Down, "hung": (*testutil.Node).Hang,
	}, func(t *testing.T, w *world, trouble func(n *testutil.Node)) {
		lease, c := w.waited()
		trouble(w.nodes[1])
		time.Sleep(10 * time.Millisecond)
		w.handsOff(lease, c, 0, queue.NotifyWindow+5*time.Millisecond)
		w.nodes[1].Up()
	})
}

// TryAcquire does not get a free key during the turns of the waiters, and gets it when these turns are over.
func TestTryWhileOthersWait(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder, dead, p := w.process(), w.process(), w.process()
		lease := w.holds(holder, "k")

		// Delayed requests reach all nodes: without the delay, the third is not asked if two have refused before.
		dead.set(coretest.Fate{Delay: time.Millisecond}, wire.OpAcquire)
		w.waits(dead, "k")
		time.Sleep(10 * time.Millisecond) // for the second attempt, which follows the subscription
		for i := range w.nodes {
			if queue := w.queue(dead, i, "k"); len(queue) != 1 {
				t.Fatalf("queue of node %d: %v", i, queue)
			}
		}
		dead.cut()
		w.release(lease)
		synctest.Wait() // until every node has released the key

		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		op, _ := errors.AsType[*OpError](err)
		wantBetween(t, "retry after", op.RetryAfter, queue.TurnTime-time.Millisecond, queue.TurnTime)
		if !slices.ContainsFunc(op.Nodes, func(n NodeReply) bool { return n.Verdict == VerdictReserved }) {
			t.Errorf("it does not say why: %v", op.Nodes)
		}
		time.Sleep(op.RetryAfter)
		w.release(w.acquire(p, "k"))
	})
}

// If the holder vanishes, the first waiter gets the key when the lease runs out.
func TestWokenWhenALeaseRunsOut(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder, p := w.process(unrenewed), w.process()
		w.holds(holder, "k")
		taken := time.Now()
		c := w.waits(p, "k")
		holder.cut()
		wantBetween(t, "lease and hand-off", w.gets(c, taken), 10*time.Second, 10*time.Second+5*time.Millisecond)
	})
}

// A completion ends the calls of all waiters with ErrDone, each within one turn.
func TestCompletionWakesAll(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		holder := w.process()
		lease := w.holds(holder, "k")
		var all []*caller
		for range 6 {
			all = append(all, w.waits(w.process(), "k"))
		}
		completed := time.Now()
		succeeds(t, lease.Complete(t.Context(), nil))
		for i, c := range all {
			testutil.Receive(t, c.done)
			wantErr(t, c.err, ErrDone)
			wantBetween(t, fmt.Sprint("waiter ", i), c.at.Sub(completed), 0, aTurn)
		}
	})
}

// However many waiters are dead, together they delay the live ones once, by the rest of the fallback.
func TestManyInTheQueueAreDead(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		lease := w.holds(w.process(), "k")
		for range 9 {
			dead := w.process()
			w.waits(dead, "k")
			dead.cut()
		}
		var live [4]func() time.Duration
		for i := range live {
			live[i] = w.waiting(t.Context(), w.process(), "k")
			synctest.Wait()
		}
		w.release(lease)
		w.pass(3 * queue.FallbackMax)
		for i, got := range live {
			if after := got(); after == 0 || after > queue.FallbackMax+2*queue.TurnTime {
				t.Errorf("live waiter %d got it after %v", i, after)
			}
		}
	})
}

// However many waiters are dead, they delay TryAcquire once, by three turns: the next grant removes all of them from
// the queue. A live waiter behind them gets the key, and then they delay TryAcquire no more.
func TestTryBesideManyDead(t *testing.T) {
	race.SkipSweep(t)
	for _, dead := range []int{3, 4, 300, 1024} {
		bubbleNamed(t, fmt.Sprint(dead), 3, func(t *testing.T, w *world) {
			holder, p := w.process(WithMaxTTL(time.Minute)), w.process(WithMaxTTL(time.Minute))
			lease := w.holds(holder, "k")
			w.queueOfTheDead("k", dead)
			w.release(lease)
			refused := w.refusedTries(p, "k", 5*time.Second)
			wantBetween(t, "refused while nobody held the key", refused, ahead*queue.TurnTime, (ahead+1)*queue.TurnTime)
		})
	}

	bubbleNamed(t, "one is alive", 3, func(t *testing.T, w *world) {
		holder, p := w.process(WithMaxTTL(time.Minute)), w.process(WithMaxTTL(time.Minute))
		lease := w.holds(holder, "k")
		w.queueOfTheDead("k", 300)
		live := w.waits(w.process(WithMaxTTL(time.Minute)), "k")
		w.release(lease)
		released := time.Now()
		testutil.Receive(t, live.done)
		succeeds(t, live.err)
		wantBetween(t, "hand-off", live.at.Sub(released), 0, queue.FallbackMax+ahead*queue.TurnTime)
		live.lease.Release(t.Context())
		synctest.Wait()
		wantBetween(t, "refused after the one that lives", w.refusedTries(p, "k", time.Second), 0, queue.TurnTime)
	})
}

// queueOfTheDead puts n calls of killed processes into the queue of a key that is held.
func (w *world) queueOfTheDead(key string, n int) {
	w.t.Helper()
	dead := w.process()
	w.waits(dead, key) // marks the key as one with a queue
	dead.cut()

	for i := range w.nodes {
		for j := range n - 1 {
			must(w.nodes[i].Exec("ZADD", dead.e.Keys.Waiters(key), time.Now().UnixMicro()+int64(j), fmt.Sprintf("P lockkit:{0}c:DEAD%d name%d", j, j)))
		}
	}

	// The next call must begin after the last of them.
	time.Sleep(time.Duration(n) * time.Microsecond)
}

// refusedTries repeats TryAcquire for a time, and returns the total time for which the key was refused.
func (w *world) refusedTries(p *process, key string, during time.Duration) (refused time.Duration) {
	w.t.Helper()
	for start := time.Now(); time.Since(start) < during; time.Sleep(5 * time.Millisecond) {
		at := time.Now()
		lease, err := p.TryAcquire(w.t.Context(), key)
		if errors.Is(err, ErrHeld) {
			refused += time.Since(at) + 5*time.Millisecond
			continue
		}
		if err != nil {
			w.t.Fatal(err)
		}
		w.release(lease)
		synctest.Wait()
	}
	return refused
}

// A notification for a waiter that the board does not know yet counts from the moment at which the waiter is added.
func TestToldBeforeTheWaitIsBooked(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for places, want := range map[string]time.Duration{"11": 0, "1": queue.NotifyWindow, "2": queue.TurnTime} {
			own := queue.NewWaiter(wire.Waiter{Name: "name" + places}, wire.Stamp{}, 2)
			for node, place := range places {
				p.e.board.Deliver(node, string(place)+" name"+places)
			}
			began := time.Now()
			p.e.board.Add(own, p.e.Buckets[0])
			p.e.board.Remove(own)
			select {
			case <-own.Wake:
				wantBetween(t, places, time.Since(began), want, want)
			case <-time.After(queue.FallbackMin):
				t.Errorf("told %q in vain", places)
			}
			own.End()
		}
	})
}
