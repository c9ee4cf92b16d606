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

// Schedules of clocks, of what is left behind, and of what others write.

// A clock that jumps ahead by two hours and back ends no record, and forgets no counter.
func TestCE31_ClockJumps(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(Retention(10*time.Minute)), w.process()
		want := w.complete(w.acquire(p, "done"), "result")
		first := w.acquire(p, "free")
		synctest.Wait() // on all nodes
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

// Trust starts before the wall clock is read that the node judges a request by, and each request has its own: so the
// node refuses what was held up on its way out, though the client's clock was corrected meanwhile.
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
		if p.e.Clock.Now().Since(r.Sent) != 3*time.Second {
			t.Error("trust does not start before the first of them")
		}
	})
}

// A holder gets a node back that was away for longer than its lease, although others ask for the key all the time
// and are granted that node whenever it is free; and it can complete with it.
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

// Two slow reboots of three nodes, one after the other, within one hold: it can complete all the same.
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

// A renewal that begins as the lease is released brings nothing back: on nodes that were never asked there is no
// tombstone.
func TestCE35_RenewalAtTheRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		w.avoids(p, 2)
		lease := w.acquire(p, "k") // node 2 is not asked
		p.links[2].Mend()
		time.Sleep(p.p.nodeTimeout)
		w.release(lease)
		lease.renew() // as the watchdog had begun it
		synctest.Wait()
		w.wantFree(p, "k")
	})
}

// A late acquire does not take a node on which its attempt's completion was refused.
func TestCE36_LateAcquireAfterARefusedCompletion(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(WithClockWindow(0))
		w.setCounter(p, 1, "k", time.Now().Add(time.Minute).UnixMicro())
		p.links[1].Next(coretest.Fate{Delay: 500 * time.Millisecond}, wire.OpAcquire)
		lease := w.acquire(p, "k") // from 0 and 2
		time.Sleep(100 * time.Millisecond)
		w.complete(lease, "result")
		time.Sleep(500 * time.Millisecond)
		w.wantFree(p, "k", 1)
	})
}

// Whoever repeats a completion that somebody else has settled meanwhile is told that it is done.
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
