package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// These schedules have wrong clocks, late requests, and counters that were written by hand.

// A clock that jumps ahead by two hours and back loses no record and no counter.
func TestCE31_ClockJumps(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(Retention(10*time.Minute)), w.process()
		want := w.complete(w.acquire(p, "done"), "result")
		first := w.acquire(p, "free")
		synctest.Wait() // the lease is on all nodes
		w.release(first)
		synctest.Wait()
		for _, n := range w.nodes {
			n.StepClock(2 * time.Hour)
			n.StepClock(-2 * time.Hour)
		}
		_, err := other.TryAcquire(t.Context(), "done")
		wantDone(t, err, want)
		for i := range w.nodes {
			if f := w.resource(p, i, "free").Counter; f != int64(first.FencingToken()) {
				t.Errorf("node %d has the counter %d", i, f)
			}
		}
	})
}

// Each request carries the wall clock of the moment at which it leaves, and the node judges it by that stamp. All
// requests of a round propose the same token, and the lease is trusted from before the first of them leaves.
func TestCE32_TrustBeforeTheWallClock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := p.newLease(t.Context(), "k")
		r := lease.attempt.newAcquireRound(false)
		r.Decided = func(*node.Round) bool { return false }
		r.Sent = p.e.Clock.Now()

		var proposal time.Time
		for i := range w.nodes {
			time.Sleep(time.Second) // each request leaves later than the one before
			call := p.e.Head.Load().Encode(1, wire.Repeat(to(r, i)), wire.NoMemory, time.Now())
			sent := coretest.RequestsOf(call.Args())[0]
			if i == 0 {
				proposal = sent.Proposes
			}
			if sent.Proposes != proposal {
				t.Errorf("request %d proposes a token of its own, so that the nodes cannot agree in one round", i)
			}
			if sent.Wall.UnixMicro() != time.Now().UnixMicro() {
				t.Errorf("request %d is stamped %v, and leaves at %v", i, sent.Wall, time.Now())
			}
		}

		const underWay = 200 * time.Millisecond
		for _, k := range p.links {
			k.Set(coretest.Fate{Delay: underWay})
		}
		late := w.acquire(p, "other")
		if left := late.remaining(); left > p.p.ttl-underWay {
			t.Errorf("a lease whose requests took %v is trusted for %v more of %v", underWay, left, p.p.ttl)
		}
	})
}

// A holder gets a node back after the node was away for longer than the lease, even if another process keeps asking for
// the key and is granted the free node again and again. If the other process releases these grants, the holder can also
// complete the key.
func TestCE34_ContendedLeaseReturns(t *testing.T) {
	for name, c := range map[string]struct{ shortly bool }{"waiters that release": {true}, "waiters that vanish": {false}} {
		bubbleNamed(t, name, 3, func(t *testing.T, w *world) {
			a, b := w.process(), w.process()
			lease := w.acquire(a, "k")
			ctx, cancel := context.WithCancel(t.Context())
			waits := make(chan error)
			go func() {
				_, err := b.Acquire(ctx, "k")
				waits <- err
			}()

			time.Sleep(time.Second)
			a.links[0].Set(coretest.Fate{Refuse: true})
			time.Sleep(a.p.ttl + 5*time.Second) // B is granted node 0 again and again
			if !c.shortly {
				b.links[0].Set(coretest.Fate{Refuse: true}, wire.OpRelease)
				time.Sleep(2 * time.Second)
			}

			a.links[0].Mend()
			b.links[0].Mend()
			time.Sleep(a.p.ttl + a.p.renewEvery + 5*time.Second)
			if owner := w.owner(a, 0, "k"); owner != lease.name() {
				t.Fatalf("node 0 belongs to %q, the holder is %v", owner, lease.name())
			}

			a.links[1].Set(coretest.Fate{Refuse: true}) // the next outage
			time.Sleep(2 * a.p.ttl)
			wantValid(t, lease)

			cancel()
			<-waits
			if c.shortly {
				w.complete(lease, "result")
			}
		})
	}
}

// A lease survives slow restarts of two of three nodes, one after the other, and can then be completed on these two.
func TestLongHoldOverReboots(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.acquire(p, "k")
		for _, n := range w.nodes[:2] {
			n.Down()
			time.Sleep(30 * time.Second)
			n.RestartEmpty()
			n.Up()
			time.Sleep(30 * time.Second)
		}
		wantValid(t, lease)
		p.records(0, 1)
		want := w.complete(lease, "result")
		_, err := other.Acquire(t.Context(), "k")
		wantDone(t, err, want)
	})
}

// A renewal that begins while the lease is being released does not bring the lease back, even to a node that was never
// asked and so has no tombstone.
func TestCE35_RenewalAtTheRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.avoids(p, 2)
		lease := w.acquire(p, "k") // node 2 is not asked
		p.links[2].Mend()
		time.Sleep(p.p.nodeTimeout)
		w.release(lease)
		lease.renew() // as if the watchdog had begun it
		synctest.Wait()
		w.wantFree(p, "k")
	})
}

// A late acquisition does not take a node that refused the completion of the same attempt.
func TestCE36_LateAcquireAfterARefusedCompletion(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0))
		w.setCounter(p, 1, "k", time.Now().Add(time.Minute).UnixMicro())
		p.links[1].Next(coretest.Fate{Delay: 500 * time.Millisecond}, wire.OpAcquire)
		lease := w.acquire(p, "k") // from nodes 0 and 2
		time.Sleep(100 * time.Millisecond)
		w.complete(lease, "result")
		time.Sleep(500 * time.Millisecond)
		w.wantFree(p, "k", 1)
	})
}

// A repeated Complete returns nil if another process has completed the record meanwhile. The first result stays.
func TestCE37_RepeatedAfterItWasSettled(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		lease := w.acquire(a, "k")
		wantErr(t, a.completeOn(lease, "result", 0), ErrUnavailable)
		time.Sleep(a.p.ttl + time.Second)
		want := Record{lease.FencingToken(), []byte("result")}
		_, err := b.reaches(0, 1).Acquire(t.Context(), "k")
		wantDone(t, err, want)
		a.mend()
		for range 2 {
			if err := lease.Complete(t.Context(), []byte("another")); err != nil {
				t.Fatalf("its own record, settled: %v", err)
			}
		}
		w.wantDoneEverywhere("k", want)
	})
}

// A counter that was written by hand does not become the token of a quorum.
func TestCE38_PoisonedCounter(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.setCounter(p, 1, "k", (1<<53-1)-10)
		for range 3 {
			lease := w.acquire(p, "k")
			if ahead := time.Until(time.UnixMicro(int64(lease.FencingToken()))); ahead > time.Minute {
				t.Fatalf("token %d is %v ahead", lease.FencingToken(), ahead)
			}
			w.release(lease)
			time.Sleep(time.Second)
		}
		p.links[0].Set(coretest.Fate{Refuse: true})
		_, err := p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "fencing counter", "delete this node's data")
	})
}
