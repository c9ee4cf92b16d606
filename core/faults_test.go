package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/testutil"
)

// Shipped bugs of other lock libraries, and what has to happen instead.

// redsync: a hung node with stock client options costs 5s per lock, extend and unlock.
func TestHungNodeCostsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "warm") // so that connections exist
		w.release(lease)
		w.nodes[1].Hang()
		start := time.Now()
		lease = w.acquire(p, "k")
		w.release(lease)
		if d := time.Since(start); d > 0 {
			t.Errorf("lock and unlock took %v although a quorum answered at once", d)
		}
		lease = w.acquire(p, "k")
		time.Sleep(10 * time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Errorf("renewals failed: %v", context.Cause(lease.Context()))
		}
		w.release(lease)
	})
}

// Without a quorum each operation is bounded by the node timeout, though stock clients wait for seconds.
func TestHungQuorumIsBoundedByTheNodeTimeout(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := &process{}
		var err error
		p.Locker, err = New(testutil.Clients(w.nodes), quietly)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(t.Context())
		if err := p.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease := w.acquire(p, "held")
		for _, n := range w.nodes {
			n.Hang()
		}
		start := time.Now()
		_, err = p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		wantErr(t, err, errNodeTimeout)
		if d := time.Since(start); d > p.p.nodeTimeout {
			t.Errorf("TryAcquire took %v, the node timeout is %v", d, p.p.nodeTimeout)
		}
		start = time.Now()
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		if d := time.Since(start); d > p.p.nodeTimeout {
			t.Errorf("Release took %v, the node timeout is %v", d, p.p.nodeTimeout)
		}
		for _, n := range w.nodes {
			n.Up()
		}
	})
}

// A waiter survives what a holder survives, and no more: rueidislock waits for ever while Redis is down.
func TestAcquireGivesUpOnNodesOutOfReach(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, n := range w.nodes {
			n.Down()
		}
		start := time.Now()
		_, err := p.Acquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		if d := time.Since(start); d < p.p.ttl || d > p.p.ttl+2*p.p.nodeTimeout {
			t.Errorf("gave up after %v, the TTL is %v", d, p.p.ttl)
		}
		op, _ := errors.AsType[*OpError](err)
		causes := 0
		for _, n := range op.Nodes {
			if n.Err != nil {
				causes++
			}
		}
		if causes < 2 {
			t.Errorf("the error does not say why the quorum is out of reach: %v", err)
		}
	})
}

func TestAcquireOutlastsABlip(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, n := range w.nodes {
			n.Down()
			time.AfterFunc(3*time.Second, n.Up)
		}
		lease, err := p.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		w.release(lease)
	})
}

// redsync: cleaning up with the caller's dead context leaves the keys for a full TTL. Here ctx is cancelled
// at every instant of an acquisition whose messages take time, and nothing stays.
func TestCancelledAtEveryInstant(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for i, k := range p.links {
			d := time.Duration(i+1) * 3 * time.Millisecond
			k.set(fate{delay: d, replyDelay: d})
		}
		for after := time.Duration(0); after < 40*time.Millisecond; after += time.Millisecond {
			key := fmt.Sprintf("k%d", after)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			lease, err := p.Acquire(ctx, key)
			if err == nil {
				lease.Release(t.Context())
			} else {
				wantErr(t, err, context.Canceled)
			}
			cancel()
			time.Sleep(100 * time.Millisecond)
			for i := range w.nodes {
				if owner := w.owner(p, i, key); owner != "" {
					t.Fatalf("cancelled after %v: node %d is held by %s", after, i, owner)
				}
			}
		}
		synctest.Wait()
		p.e.watchdog.mu.Lock()
		defer p.e.watchdog.mu.Unlock()
		if len(p.e.lines.m) > 0 || len(p.e.leases) > 0 || len(p.e.watchdog.due) > 0 {
			t.Errorf("left behind: %d lines, %d leases, %d with the watchdog", len(p.e.lines.m), len(p.e.leases), len(p.e.watchdog.due))
		}
	})
}

// The same for one that waits: in the local queue, and between two attempts.
func TestCancelledWhileWaiting(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		lease := w.acquire(holder, "k")
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := p.Acquire(ctx, "k")
				wantErr(t, err, context.DeadlineExceeded)
				if errors.Is(err, ErrHeld) || errors.Is(err, ErrUnavailable) {
					t.Errorf("a cancelled wait is neither held nor unavailable: %v", err)
				}
			})
		}
		waiting.Wait()
		w.release(lease)
		w.release(w.acquire(p, "k"))
	})
}

// rueidislock, redsync: after a lost reply, the retry finds the key taken, by itself.
func TestReplyOfAcquireLost(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		p.links[0].next(fate{loseReply: true}, acquireScript)
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		time.Sleep(2 * p.p.nodeTimeout) // released in the background
		w.release(w.acquire(p, "k"))
	})
}

// A request that arrives twice is granted once, with one token.
func TestRequestArrivesTwice(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, k := range p.links {
			k.set(fate{twice: true})
		}
		lease := w.acquire(p, "k")
		time.Sleep(time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Fatal(context.Cause(lease.Context()))
		}
		w.release(lease)
		w.release(w.acquire(p, "k"))
	})
}

// A grant that comes after the attempt was given up is released, even if the first release was lost too.
func TestLateGrantAfterGivingUp(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0))
		p.links[0].decide(func(s *script, _ []any) fate {
			if s == acquireScript {
				return fate{delay: 5 * time.Second}
			}
			return fate{refuse: true}
		})
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		time.Sleep(3500 * time.Millisecond)
		p.links[0].clear()
		time.Sleep(2 * time.Second)
		if owner := w.owner(p, 0, "k"); owner != "" {
			t.Fatalf("held by %s, which gave up", owner)
		}
	})
}

// Redisson, redsync: a renewal that meets a release brings the lock back. Both orders.
func TestRenewalRacesRelease(t *testing.T) {
	for name, late := range map[string]*script{"renewal late": renewScript, "release late": releaseScript} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				p := w.process()
				lease := w.acquire(p, "k")
				begun := make(chan struct{})
				var once sync.Once
				for _, k := range p.links {
					k.decide(func(s *script, _ []any) (f fate) {
						if s == renewScript {
							once.Do(func() { close(begun) })
						}
						if s == late {
							f.delay = 200 * time.Millisecond
						}
						return f
					})
				}
				receive(t, begun)
				w.release(lease)
				time.Sleep(time.Second)
				for i := range w.nodes {
					if owner := w.owner(p, i, "k"); owner != "" {
						t.Fatalf("node %d is held by %s, which was released", i, owner)
					}
				}
			})
		})
	}
}

// node-redlock: split votes of an even number of nodes never settle.
func TestSplitVotesSettle(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			bubble(t, n, func(t *testing.T, w *world) {
				a, b := w.process(), w.process()
				for i := range n { // each is first at one half
					slow := []*process{a, b}[i%2]
					slow.links[i].next(fate{delay: 10 * time.Millisecond}, acquireScript)
				}
				start := time.Now()
				leases := make(chan *Lease, 2)
				for _, p := range []*process{a, b} {
					go func() {
						lease, err := p.TryAcquire(t.Context(), "k")
						if err != nil && !errors.Is(err, ErrHeld) {
							t.Error(err)
						}
						leases <- lease
					}()
				}
				one, other := receive(t, leases), receive(t, leases)
				if d := time.Since(start); d > a.p.nodeTimeout {
					t.Errorf("settled after %v", d)
				}
				if (one == nil) == (other == nil) { // who only tries would otherwise leave a free key to nobody
					t.Fatalf("%v and %v have the key, want one of them", one, other)
				}
				if one == nil {
					one = other
				}
				w.release(one)
				w.release(w.acquire(b, "k"))
			})
		})
	}
}

// As many contenders as nodes, and each has the vote of one: all of them are refused by a quorum, and nobody
// holds the key.
func TestThreeContendersSettle(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		leases := make(chan *Lease, 3)
		var all []*process
		for i := range 3 {
			p := w.process()
			for n := range 3 { // each is first at another node
				p.links[n].next(fate{delay: time.Duration(1+(n-i+3)%3) * time.Millisecond}, acquireScript)
			}
			all = append(all, p)
		}
		for _, p := range all {
			go func() {
				lease, err := p.TryAcquire(t.Context(), "k")
				if err != nil && !errors.Is(err, ErrHeld) {
					t.Error(err)
				}
				leases <- lease
			}()
		}
		holders := 0
		for range 3 {
			if lease := receive(t, leases); lease != nil {
				holders++
			}
		}
		if holders != 1 {
			t.Errorf("%d have the key, want 1", holders)
		}
	})
}

// node-redlock: an attempt that won a minority must not stand in its own way.
func TestOwnTracesDoNotBlock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.links[1].sequence(acquireScript, fate{refuse: true}, fate{})
		p.links[2].set(fate{refuse: true})
		lease, err := p.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		w.release(lease)
	})
}

// node-redlock, Redisson: a grant whose reply comes after validity is no lease.
func TestReplyAfterValidity(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithFixedLease(), WithNodeTimeout(7*time.Second))
		p.links[0].next(fate{replyDelay: 6900 * time.Millisecond}, acquireScript)
		lease := w.acquire(p, "k")
		if left := time.Until(lease.ValidUntil()); left > time.Second {
			t.Errorf("%v left of a lease that took 6.9s to get: trust starts with the reply", left)
		}
		w.release(lease)
	})
	t.Run("write-back", func(t *testing.T) {
		bubble(t, 3, func(t *testing.T, w *world) {
			x := w.process()
			w.partly(x, 0, "k")
			p := w.process(WithFixedLease(), WithNodeTimeout(5*time.Second))
			p.links[2].set(fate{refuse: true})
			p.links[1].set(fate{replyDelay: 4 * time.Second}, acquireScript, renewScript)
			if lease, err := p.TryAcquire(t.Context(), "k"); err == nil {
				t.Fatalf("a lease that is %v over", -time.Until(lease.ValidUntil()))
			}
			time.Sleep(10 * time.Second)
			if owner := w.owner(p, 0, "k"); owner != "" {
				t.Errorf("held by %s, which failed", owner)
			}
		})
	})
}

// lynx-redis-lock, DistributedLock: a renewal trusted from its reply on, not from when it was sent.
func TestRenewalIsTrustedFromItsRequest(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		var sent atomic.Int64
		for _, k := range p.links {
			k.decide(func(s *script, _ []any) fate {
				if s != renewScript {
					return fate{}
				}
				sent.Store(time.Now().UnixNano())
				return fate{replyDelay: 900 * time.Millisecond}
			})
		}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if trusted := lease.ValidUntil().Sub(time.Unix(0, sent.Load())); sent.Load() != 0 && trusted > p.p.validity {
				t.Fatalf("trusted for %v from the request, validity is %v", trusted, p.p.validity)
			}
		}
	})
}

// ShedLock, gocron-redis-lock, jefferyjob: one failed renewal and there are no more.
func TestRenewalFailsOnceAndGoesOn(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, k := range p.links {
			k.next(fate{lose: true}, renewScript)
		}
		lease := w.acquire(p, "k")
		time.Sleep(time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Fatal(context.Cause(lease.Context()))
		}
	})
}

// redsync: a rolling restart erodes the quorum until the lock is lost.
func TestRollingRestart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, other := w.process(), w.process()
		lease := w.acquire(holder, "k")
		for _, n := range w.nodes {
			n.RestartEmpty()
			for range 100 {
				if _, err := other.TryAcquire(t.Context(), "k"); err == nil {
					t.Fatal("a second holder")
				}
				time.Sleep(2 * holder.p.renewEvery / 100)
			}
		}
		time.Sleep(time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("lost in a rolling restart: %v", context.Cause(lease.Context()))
		}
		w.release(lease)
	})
}

// A holder that was paused past its lease finds its context ended on the first look, before any timer has
// had its turn; its write is refused by whoever checks tokens.
func TestHolderPausedPastItsLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, other := w.process(), w.process()
		lease := w.acquire(holder, "k")
		var store fencedStore
		if !store.write("k", lease.FencingToken()) {
			t.Fatal("first write refused")
		}
		holder.e.watchdog.mu.Lock() // its timers do not run while it is paused
		holder.e.watchdog.timer.Stop()
		holder.e.watchdog.mu.Unlock()
		time.Sleep(11 * time.Second)
		second := w.acquire(other, "k")
		if !store.write("k", second.FencingToken()) {
			t.Fatal("the second holder's write was refused")
		}
		if lease.Context().Err() == nil {
			t.Error("the context has not ended on the first look")
		}
		wantErr(t, context.Cause(lease.Context()), ErrLost)
		if store.write("k", lease.FencingToken()) {
			t.Error("the late write was accepted")
		}
		wantErr(t, lease.Release(t.Context()), ErrLost)
	})
}

// Redisson: one bad node delays the renewal of all leases.
func TestManyLeasesWithADeadNode(t *testing.T) {
	for name, fault := range map[string]func(*testutil.Node){"down": (*testutil.Node).Down, "hung": (*testutil.Node).Hang} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				p := w.process()
				var leases []*Lease
				for i := range 500 {
					leases = append(leases, w.acquire(p, fmt.Sprint("k", i)))
				}
				fault(w.nodes[2])
				half := (p.p.validity - p.p.margin) / 2
				for range 20 { // three renewals
					time.Sleep(500 * time.Millisecond)
					for _, lease := range leases {
						if left := lease.left(); left < half {
							t.Fatalf("%v left, half the margin is %v", left, half)
						}
					}
				}
				n := p.e.nodes[2]
				n.mu.Lock()
				if n.inFlight > 20 {
					t.Errorf("%d requests pile up at the dead node", n.inFlight)
				}
				n.mu.Unlock()
				w.nodes[2].Up()
			})
		})
	}
}

// A node that answers only when the lease is over must not revive it.
func TestNodeAnswersAfterTheLease(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0))
		lease := w.acquire(p, "k")
		p.links[0].set(fate{replyDelay: 9 * time.Second}, renewScript)
		until := lease.ValidUntil()
		receive(t, lease.Context().Done())
		wantErr(t, context.Cause(lease.Context()), ErrLost)
		if d := time.Since(until); d > 0 {
			t.Errorf("the context ended %v after the end of validity", d)
		}
		time.Sleep(20 * time.Second)
		if lease.Context().Err() == nil {
			t.Error("revived")
		}
	})
}

// Nor may a renewal that a paused process hears of only then.
func TestRenewalHeardAfterTheLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0), WithRenewEvery(3500*time.Millisecond), WithNodeTimeout(5*time.Second))
		lease := w.acquire(p, "k")
		for _, k := range p.links {
			k.sequence(renewScript, fate{refuse: true}, fate{refuse: true}, fate{replyDelay: 4900 * time.Millisecond})
		}
		time.Sleep(6 * time.Second) // the third renewal is under way
		p.e.watchdog.mu.Lock()      // timers do not run while the process is paused
		p.e.watchdog.timer.Stop()
		p.e.watchdog.mu.Unlock()
		time.Sleep(5500 * time.Millisecond)
		if lease.Context().Err() == nil {
			t.Errorf("revived, for another %v", time.Until(lease.ValidUntil()))
		}
	})
}

// Property: whatever nodes lose their memory in between, tokens grow (single-phase counters broke the order
// 518 times in 3000 acquisitions).
func TestTokensGrowOverNodeLosses(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithTTL(time.Second), WithClockWindow(100*time.Millisecond))
		var last, grants uint64
		for i := range 300 {
			for j, k := range p.links {
				k.set(fate{refuse: i%3 == j && i%2 == 0})
			}
			if i%30 == 17 {
				w.nodes[i/30%3].RestartEmpty()
			}
			lease, err := p.Acquire(t.Context(), "k")
			if errors.Is(err, ErrUnavailable) { // one node emptied, one refusing, for longer than a TTL
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			grants++
			if lease.FencingToken() <= last {
				t.Fatalf("token %d after %d", lease.FencingToken(), last)
			}
			last = lease.FencingToken()
			lease.Release(t.Context())
		}
		if grants < 250 {
			t.Errorf("only %d grants", grants)
		}
	})
}

// gocron, gin: release with a context that is cancelled already.
func TestReleaseWithCancelledContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := p.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // two of three are enough for an answer
		for i := range w.nodes {
			if owner := w.owner(p, i, "k"); owner != "" {
				t.Fatalf("node %d is held by %s", i, owner)
			}
		}
	})
}

// Redisson: an unlock whose reply was lost is repeated, and says that it is not the owner.
func TestReleaseRepeated(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		p.links[0].next(fate{loseReply: true}, releaseScript)
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("repeated: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("and again: %v", err)
		}
	})
}

// An hour of renewals costs no real time, and is bounded in requests.
func TestHourOfRenewals(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		time.Sleep(time.Hour)
		if err := lease.Context().Err(); err != nil {
			t.Fatal(context.Cause(lease.Context()))
		}
		w.release(lease)
		calls := w.nodes[0].Calls()["EVALSHA"]
		if perTTL := float64(calls) / 360; perTTL > 3.5 {
			t.Errorf("%.1f requests per TTL and node for an idle lease", perTTL)
		}
	})
}

// rueidislock, go-redis: a stock client sends a script again by itself when the reply is lost.
func TestClientDoesNotRetryScripts(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		client := w.nodes[0].ClientWith(func(o *redis.Options) { o.MaxRetries = 3 })
		l, err := New([]redis.UniversalClient{client}, quietly)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close(t.Context())
		lease, err := l.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		before := w.nodes[0].Calls()["EVALSHA"]
		w.nodes[0].DropReplies(1)
		l.TryAcquire(t.Context(), "other")
		time.Sleep(5 * time.Second)
		if sent := w.nodes[0].Calls()["EVALSHA"] - before; sent > 1+2+3 { // the attempt, its release twice, renewals
			t.Errorf("%d scripts sent", sent)
		}
		lease.Release(t.Context())
	})
}

// The offset of this process's clock is that of the middle node, whatever a single one says.
func TestClockOffset(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.nodes[0].StepClock(300 * time.Millisecond)
		w.nodes[1].StepClock(200 * time.Millisecond)
		w.nodes[2].StepClock(-time.Hour)
		w.release(w.acquire(p, "k"))
		synctest.Wait()
		offset, ok := p.ClockOffset()
		if want := 200 * time.Millisecond; !ok || offset != want {
			t.Errorf("offset %v, %v, want %v", offset, ok, want)
		}
	})
}

// "Failed to acquire lock" helps nobody at 3 a.m.
func TestErrorNamesNodes(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(w *world, p *process)
		want  []string
	}{
		"clock": {func(w *world, p *process) {
			w.nodes[0].StepClock(3 * time.Second)
			w.nodes[1].StepClock(-2 * time.Second)
		}, []string{"node 0 (embedded-", "off by 3s", "node 1 (embedded-", "off by -2s"}},
		"memory": {func(w *world, p *process) {
			w.nodes[0].RestartEmpty()
			w.nodes[1].Flush()
		}, []string{"node 0", "node 1", "quarantined for another 10s", "retry after 10s"}},
		"network": {func(w *world, p *process) {
			p.links[0].set(fate{refuse: true})
			p.links[2].set(fate{lose: true})
			p.links[1].set(fate{lose: true})
		}, []string{"node 0", "connection refused", "node 1", "no answer within the node timeout"}},
		"replica": {func(w *world, p *process) {
			w.nodes[0].SetReplica(true)
			w.nodes[1].SetReplica(true)
		}, []string{"node 0", "is a replica, not a master"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				p := w.process()
				c.fault(w, p)
				_, err := p.TryAcquire(t.Context(), "some key")
				wantErr(t, err, ErrUnavailable)
				for _, want := range append(c.want, `acquire "some key"`) {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error does not mention %q: %v", want, err)
					}
				}
			})
		})
	}
}
