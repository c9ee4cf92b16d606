package core

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests renewals that fail or come late. Some of the cases are bugs of other lock libraries.

// A renewed lease is trusted from the moment its request was sent. lynx-redis-lock and DistributedLock trusted it from
// the reply on.
func TestRenewalIsTrustedFromItsRequest(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		var sent atomic.Int64
		for _, k := range p.links {
			k.Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
				if s != wire.OpRenew {
					return coretest.Fate{}
				}
				sent.Store(time.Now().UnixNano())
				return coretest.Fate{ReplyDelay: 900 * time.Millisecond}
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

// A renewal that fails is followed by others. ShedLock, gocron-redis-lock and jefferyjob stopped after one failure.
func TestRenewalFailsOnceAndGoesOn(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.next(coretest.Fate{Lose: true}, wire.OpRenew)
		lease := w.acquire(p, "k")
		time.Sleep(time.Minute)
		wantValid(t, lease)
	})
}

// A lease that too few nodes have ends when they report that, and not only when it runs out.
func TestLeaseThatAQuorumHasNot(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		lease := w.acquire(w.process(), "k")
		over := func(node int) {
			w.nodes[node].Exec("DEL", lease.attempt.lock.Resource())
			tombstone, _ := tombstoneOf(lease.attempt.lock)
			w.nodes[node].Exec("SET", tombstone, "1")
		}

		over(0)
		time.Sleep(lease.attempt.p.renewEvery * 3 / 2)
		wantValid(t, lease)

		over(1)
		until := lease.ValidUntil()
		testutil.Receive(t, lease.Context().Done())
		wantReason(t, lease.Lost(), LossTaken)
		if left := time.Until(until); left < lease.attempt.p.ttl/4 {
			t.Errorf("it ended %v before it would have run out", left)
		}
	})
}

// A renewal that is answered only when the lease is over does not revive the lease.
func TestNodeAnswersAfterTheLease(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0))
		lease := w.acquire(p, "k")
		p.links[0].Set(coretest.Fate{ReplyDelay: 9 * time.Second}, wire.OpRenew)
		until := lease.ValidUntil()
		testutil.Receive(t, lease.Context().Done())
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

// The end of trust does not wait for a renewal that is under way then, however long that may still take.
func TestLeaseEndsUnderARenewal(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0), withRenewEvery(3500*time.Millisecond), withNodeTimeout(5*time.Second))
		lease := w.acquire(p, "k")
		acquired, until := time.Now(), lease.ValidUntil()
		p.links[0].Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
			late := time.Since(acquired) >= 4*time.Second // its timeout is later than the end of trust
			return coretest.Fate{Refuse: s == wire.OpRenew && !late, Lose: s == wire.OpRenew && late}
		})
		time.Sleep(time.Until(until) - 1)
		lease.attempt.mu.Lock()
		if lease.renewal == nil {
			t.Error("the schedule is off: no renewal is under way")
		}
		lease.attempt.mu.Unlock()
		testutil.Receive(t, lease.Context().Done())
		if d := time.Since(until); d > 0 {
			t.Errorf("the context ended %v after the end of validity", d)
		}
	})
}

// If a process is paused, and the reply to a renewal arrives after the end of the lease, it does not revive the lease.
func TestRenewalHeardAfterTheLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0), withRenewEvery(3500*time.Millisecond), withNodeTimeout(5*time.Second))
		lease := w.acquire(p, "k")
		for _, k := range p.links {
			k.Sequence(wire.OpRenew, coretest.Fate{Refuse: true}, coretest.Fate{Refuse: true}, coretest.Fate{ReplyDelay: 4900 * time.Millisecond})
		}
		time.Sleep(6 * time.Second) // the third renewal is under way
		p.stopTimers()
		time.Sleep(5500 * time.Millisecond)
		if lease.Context().Err() == nil {
			t.Errorf("revived, for another %v", time.Until(lease.ValidUntil()))
		}
	})
}

// If a holder was paused past the end of its lease, the context has ended at the first check, even if no timer has
// fired yet. A store that checks tokens rejects its write.
func TestHolderPausedPastItsLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log logbook.Book
		holder, other := w.process(WithLogger(log.Logger())), w.process()
		lease := w.acquire(holder, "k")
		var store fencedStore
		if !store.write("k", lease.FencingToken()) {
			t.Fatal("first write refused")
		}

		holder.stopTimers()
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
		synctest.Wait()
		log.Want(t, 1, "lease lost", "reason=expired", "held=7.") // without the rest of the pause
	})
}

// A lease that is held for long costs a bounded number of requests.
func TestHourOfRenewals(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		time.Sleep(time.Hour)
		wantValid(t, lease)
		w.release(lease)
		calls := w.nodes[0].Calls()["EVALSHA"]
		if perTTL := float64(calls) / 360; perTTL > 3.5 {
			t.Errorf("%.1f requests per TTL and node for an idle lease", perTTL)
		}
	})
}

// A lease that is due soon can be renewed together with one that is due now. Looking ahead neither ends a lease early
// nor gives up a renewal that is under way.
func TestRenewalsAheadOfTime(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		p.stopTimers()
		time.Sleep(time.Second)

		now := p.e.Clock.Now()
		if lease.inspect(now, lease.renewAt-1) != nil {
			t.Error("renewed before it is due")
		}
		r := lease.inspect(now, lease.renewAt)
		if r == nil {
			t.Fatal("not renewed when it is due")
		}

		p.links[0].Set(coretest.Fate{Delay: time.Second / 2})
		r.start()
		time.Sleep(time.Millisecond)
		until := lease.liveUntil.Load()
		twice := lease.inspect(p.e.Clock.Now(), until.Add(time.Second)) != nil
		lease.attempt.mu.Lock()
		if twice || lease.renewal != r {
			t.Error("renewed twice, or given up")
		}
		lease.attempt.mu.Unlock()

		wantValid(t, lease)
		time.Sleep(2 * time.Second)
		if got := lease.liveUntil.Load(); got <= until {
			t.Errorf("trusted until %v, before the renewal until %v", got, until)
		}
	})
}

// The timeout of a renewal begins when it is sent. So a slow observer or a busy machine, which delay the sending, cost
// no lease.
func TestRenewalThatLeavesLate(t *testing.T) {
	bubbleNamed(t, "behind a slow observer", 3, func(t *testing.T, w *world) {
		p := w.process(WithObserver(Observer{Start: slowRenewals}))
		lease := w.acquire(p, "k")
		time.Sleep(time.Minute)
		wantValid(t, lease)
	})

	bubbleNamed(t, "behind one that is told of a node that is left alone", 3, func(t *testing.T, w *world) {
		var told atomic.Bool
		p := w.process(WithObserver(Observer{Node: func(_ context.Context, _ OpKind, r NodeReply) {
			if r.Verdict == VerdictCircuitOpen {
				time.Sleep(1500 * time.Millisecond)
				told.Store(true)
			}
		}}))
		lease := w.acquire(p, "k")
		p.stopTimers()
		w.unfit(p, 2)
		r := lease.inspect(p.e.Clock.Now(), lease.renewAt)
		began := time.Now()
		r.start()
		if took := time.Since(began); took > 0 {
			t.Errorf("the watchdog waited for it for %v", took)
		}
		time.Sleep(2 * time.Second)
		if !told.Load() {
			t.Error("it was not told")
		}
		wantValid(t, lease)
	})

	bubbleNamed(t, "on a busy machine", 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		time.Sleep(time.Second)
		p.stopTimers()

		r := lease.inspect(p.e.Clock.Now(), lease.renewAt)
		time.Sleep(2 * p.p.nodeTimeout)
		if lease.inspect(p.e.Clock.Now(), p.e.Clock.Now()) != nil {
			t.Error("renewed twice")
		}

		until := lease.ValidUntil()
		r.start()
		synctest.Wait()
		wantValid(t, lease)
		if !lease.ValidUntil().After(until) {
			t.Error("the renewal counts for nothing")
		}
	})
}

// slowRenewals is the Start function of an observer that delays each renewal for longer than a node timeout.
func slowRenewals(ctx context.Context, op Op) (context.Context, func(Outcome)) {
	if op.Kind == OpRenew {
		time.Sleep(1500 * time.Millisecond)
	}
	return ctx, nil
}

// If another attempt holds the key on one node, the next renewal comes before the turn ends that the node has reserved
// for the lease. Only every other renewal is early: another attempt that stays must not cost the nodes a renewal after
// each pause.
func TestEveryOtherRenewalIsEarly(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.e.jitter = func(n int64) int64 { return n / 2 }
		lease := w.acquire(p, "k")
		w.change(p, 2, "k", func(r *testutil.Resource) {
			r.Owner, r.Expiry = "another", time.Now().Add(time.Hour).UnixMilli()
		})

		var sent []time.Time
		p.set(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpRenew) // node 2 refuses before the others confirm
		p.links[2].Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
			if s == wire.OpRenew {
				sent = append(sent, time.Now())
			}
			return coretest.Fate{}
		})

		w.pass(time.Minute)
		if len(sent) < 10 {
			t.Fatalf("%d renewals", len(sent))
		}
		for i := range sent[1:] {
			want := p.p.renewEvery
			if i%2 == 0 {
				want = p.p.renewalPause + time.Millisecond
			}
			if got := sent[i+1].Sub(sent[i]); got != want {
				t.Errorf("renewal %d comes after %v, want %v", i+1, got, want)
			}
		}

		want := sent[len(sent)-1].UnixMilli() + (p.p.renewalPause + p.p.nodeTimeout).Milliseconds()
		if turn := w.resource(p, 2, "k").TurnUntil; turn != want {
			t.Errorf("the turn lasts until %d, want %d", turn, want)
		}
		if lease.Context().Err() != nil {
			t.Error("lost")
		}
	})
}
