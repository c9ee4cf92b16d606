package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// In these schedules nodes lose data: they restart empty or from a snapshot, are flushed, or are promoted.

// A completion counts on a node only in the memory in which the node confirmed the lease. Node 1 goes back to a state
// in which A held the key, or to an empty one, and forgets B's lease.
func TestCE21_CompletionOnANodeThatForgot(t *testing.T) {
	bubbles(t, 3, map[string]func(n *testutil.Node, old *testutil.Snapshot){
		"snapshot": func(n *testutil.Node, old *testutil.Snapshot) { n.RestartFrom(old) },
		"empty":    func(n *testutil.Node, _ *testutil.Snapshot) { n.RestartEmpty() },
		"promoted": func(n *testutil.Node, old *testutil.Snapshot) { n.PromoteFrom(old) },
		"snapshot, after the quarantine": func(n *testutil.Node, old *testutil.Snapshot) {
			n.RestartFrom(old)
			time.Sleep(11 * time.Second)
		},
		"flushed, after the quarantine": func(n *testutil.Node, _ *testutil.Snapshot) {
			n.Flush()
			time.Sleep(11 * time.Second)
		},
	}, func(t *testing.T, w *world, forget func(n *testutil.Node, old *testutil.Snapshot)) {
		a, b, third := w.process(), w.process(), w.process()
		stale := w.acquire(a.reaches(0, 1), "k")
		old := w.nodes[1].Snapshot()
		a.refused()
		time.Sleep(a.p.ttl + time.Second)

		lease := w.acquire(b.reaches(1, 2), "k")
		b.links[1].Set(coretest.Fate{Refuse: true}, wire.OpRenew) // B does not bring its lease back

		forget(w.nodes[1], old)
		third.TryAcquire(t.Context(), "other") // the quarantine begins
		a.mend()
		err := stale.Complete(t.Context(), []byte("stale"))
		wantErr(t, err, ErrLost)
		wantReason(t, err, LossForgotten)

		b.mend()
		want := w.complete(lease, "result")
		_, err = third.Acquire(t.Context(), "k")
		wantDone(t, err, want)
	})
}

// completeBarely makes p complete key on a bare quorum, nodes 0 and 1.
func (w *world) completeBarely(p *process, key string) Record {
	w.t.Helper()
	lease := w.acquire(p, key)
	p.records(0, 1)
	want := w.complete(lease, "result")
	synctest.Wait()
	return want
}

// A record that only a bare quorum holds is lost if one of these nodes forgets it. A process that asks for the key
// while the other nodes answer copies the record to them and so ends the risk. The record also survives if the node
// that remembers it answers before the others.
func TestCE22_RecordOnABareQuorum(t *testing.T) {
	forgotten := func(w *world, other *process) {
		w.nodes[1].RestartEmpty()
		other.reaches(1, 2)
	}

	bubbleNamed(t, "one of it forgets at once", 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		w.completeBarely(p, "k")
		forgotten(w, other)
		w.await(other, "k") // the limit
	})

	bubbleNamed(t, "one of it forgets when somebody has asked", 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		want := w.completeBarely(p, "k")
		_, err := other.TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
		synctest.Wait()
		forgotten(w, other)
		_, err = other.Acquire(t.Context(), "k")
		wantDone(t, err, want)
	})

	bubbleNamed(t, "the one that remembers is heard in time", 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		want := w.completeBarely(p, "k")
		w.nodes[1].RestartEmpty()
		other.TryAcquire(t.Context(), "another")
		time.Sleep(11 * time.Second)
		for _, i := range []int{1, 2} {
			other.links[i].Set(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpAcquire)
		}
		_, err := other.TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
	})
}

// Confirmations of two calls do not add up to a quorum, because a node may have forgotten the first before the second.
func TestCE23_ConfirmationsOfTwoCalls(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		stale := w.acquire(a, "k")
		wantErr(t, a.completeOn(stale, "stale", 0), ErrUnavailable)

		a.refused()
		time.Sleep(a.p.ttl + time.Second)
		w.nodes[0].RestartEmpty()
		b.TryAcquire(t.Context(), "other")
		time.Sleep(11 * time.Second)

		lease := w.acquire(b.reaches(0, 1), "k")
		want := w.complete(lease, "result")
		if err := a.completeOn(stale, "stale", 2); err == nil {
			t.Error("node 2, and node 0 before it forgot, make a quorum")
		}

		a.mend()
		wantErr(t, stale.Complete(t.Context(), []byte("stale")), ErrLost)
		_, err := w.process().TryAcquire(t.Context(), "k")
		wantDone(t, err, want)
	})
}

// A lease that ran out on a node does not return there with a snapshot that contains it, because the node has granted
// the key to another attempt since.
func TestCE24_RenewalOnARolledBackNode(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		opts := append(slowly, WithMaxTTL(40*time.Second)) // so that the token clamp spans the delay of A's request
		b, a := w.process(opts...), w.process(opts...)
		bLease := w.acquire(b, "k") // on all nodes; runs out on node 0 at 10s
		synctest.Wait()

		old := w.nodes[0].Snapshot()
		b.links[0].Set(coretest.Fate{Refuse: true}, wire.OpRenew)
		time.Sleep(8 * time.Second)
		b.set(coretest.Fate{Refuse: true}, wire.OpRenew) // on nodes 1 and 2 it runs out by 18s
		time.Sleep(6 * time.Second)

		a.links[1].Next(coretest.Fate{Delay: 4500 * time.Millisecond}, wire.OpAcquire)
		a.links[2].Set(coretest.Fate{Refuse: true})
		late := trying(a.Locker, t.Context(), "k")
		time.Sleep(50 * time.Millisecond)
		if w.owner(a, 0, "k") == bLease.name() {
			t.Fatal("the schedule is off: A was not granted node 0")
		}

		w.nodes[0].RestartFrom(old)
		b.links[0].Mend()
		b.links[2].Mend() // B's next renewal reaches 0 and 2

		aLease := testutil.Receive(t, late).lease
		if aLease == nil {
			t.Fatal("the schedule is off: A was not granted nodes 0 and 1")
		}
		wantNotBoth(t, aLease, bLease)
	})
}

// A node in quarantine does not confirm a lease that is still live by the node's clock. The clock may have been ahead,
// within the window, when the node granted the key to another process.
func TestCE25_HealingWhileTheClockSteps(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(WithRestartGuard(true)), w.process(WithRestartGuard(true))
		lease := w.acquire(p, "k") // until 10s
		p.links[0].Set(coretest.Fate{Refuse: true}, wire.OpRenew)
		time.Sleep(9600 * time.Millisecond)

		w.nodes[0].StepClock(450 * time.Millisecond)
		w.acquire(other, "k") // its clock reads 10.05s
		other.refused()

		w.nodes[0].RestartEmpty()
		w.nodes[0].StepClock(-900 * time.Millisecond) // and now 9.15s
		p.mend()

		lease.attempt.mu.Lock()
		expiry := lease.attempt.nodes[0].expiry
		lease.attempt.mu.Unlock()
		// The renewal looks as if it was sent before the loss, so that node 0 has to judge it.
		v := lease.renewAlone(expiry)
		if v.Verdict != wire.Quarantined {
			t.Fatalf("the lease is %v", Verdict(v.Verdict))
		}
	})
}

// A node that a late renewal took after the lease was lost does not count for a completion, because the node may have
// forgotten a later holder.
func TestCE26_TakenAgainWithoutTrust(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		opts := []Option{WithClockWindow(0), withNodeTimeout(5 * time.Second), unrenewed}
		a, b := w.process(opts...), w.process(opts...)

		stale := w.acquire(a.reaches(0, 2), "k")
		a.links[2].Set(coretest.Fate{Refuse: true}, wire.OpRenew)
		time.Sleep(7500 * time.Millisecond)
		a.links[0].Next(coretest.Fate{Delay: 16 * time.Second}, wire.OpRenew)
		go stale.renew() // sent while the lease is trusted
		time.Sleep(3 * time.Second)
		wantErr(t, context.Cause(stale.Context()), ErrLost)

		lease := w.acquire(b.reaches(0, 1), "k")
		w.nodes[0].Flush() // unlike a restart, it breaks no connection
		w.stranger(opts...).TryAcquire(t.Context(), "other")
		b.refused()
		time.Sleep(14 * time.Second) // node 0 is out of quarantine, and A's renewal has arrived

		if w.owner(a, 0, "k") != stale.name() {
			t.Fatal("the schedule is off: the renewal did not take node 0")
		}

		a.mend()
		b.mend()
		first, second := stale.Complete(t.Context(), []byte("a")), lease.Complete(t.Context(), []byte("b"))
		if first == nil && second == nil {
			t.Fatal("two results")
		}
		wantErr(t, first, ErrLost)
	})
}

// A completion that is still under way when its lease is released must not count on a node that has forgotten the next
// holder, even if the node had confirmed the lease for longer.
func TestCE27_CompletionUnderWayAtTheRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		opts := []Option{WithClockWindow(0)}
		a, b := w.process(opts...), w.process(opts...)
		stale := w.acquire(a.reaches(0, 1), "k")
		a.links[0].Next(coretest.Fate{Delay: 3 * time.Second}, wire.OpComplete)
		wantErr(t, stale.Complete(over(), []byte("stale")), ErrUnavailable) // node 1 has the record
		w.release(stale)
		w.acquire(b.reaches(0, 2), "k")
		b.refused()
		w.nodes[0].Flush()
		time.Sleep(4 * time.Second)
		if got := w.recordOn(a, 0, "k"); got != "" {
			t.Fatalf("node 0 took %q, although it forgot who was granted the key", got)
		}
	})
}

// An attempt completes an unfinished record only while its own grants can be trusted.
func TestCE28_SettlingTakesTooLong(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		w.cutShort(w.process(), "k", "result")

		p := w.process(append(slowly, withNodeTimeout(6*time.Second))...)
		// The attempt that completes the record has to write its token back.
		w.setCounter(p, 1, "k", time.Now().Add(time.Hour).UnixMicro())

		p.links[2].Set(coretest.Fate{Refuse: true})
		p.links[0].Set(coretest.Fate{ReplyDelay: 5 * time.Second}, wire.OpAcquire, wire.OpRenew)
		p.links[1].Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
			switch s {
			case wire.OpAcquire, wire.OpRenew:
				return coretest.Fate{ReplyDelay: 5 * time.Second}
			case wire.OpRelease: // of the attempt that found the record
				w.setCounter(p, 1, "k", time.Now().Add(2*time.Hour).UnixMicro())
			}
			return coretest.Fate{}
		})

		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		_, err := p.TryAcquire(ctx, "k")
		if errors.Is(err, ErrDone) || err == nil {
			t.Fatalf("error is %v", err)
		}
		if got := w.recordOn(p, 1, "k"); got != "" {
			t.Errorf("node 1 took %q after the validity", got)
		}
	})
}

// A completion does not count on a primary that has just been promoted, because the old primary may still grant the
// key.
func TestCE29_CompletionWithinTheReplicaLag(t *testing.T) {
	opts := []Option{WithRestartGuard(true), WithReplicaLag(2 * time.Second)}
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(opts...)
		lease := w.acquire(p, "k")
		w.nodes[0].Promote() // with all that was written before
		wantErr(t, lease.Complete(over(), []byte("result")), ErrUnavailable)
		if got := w.recordOn(p, 0, "k"); got != "" {
			t.Errorf("node 0 took %q", got)
		}
	})
	bubbleNamed(t, "after it, and a renewal", 1, func(t *testing.T, w *world) {
		p := w.process(opts...)
		lease := w.acquire(p, "k")
		w.nodes[0].Promote()
		time.Sleep(6 * time.Second)
		want := w.complete(lease, "result")
		time.Sleep(10 * time.Second)
		_, err := w.process(opts...).Acquire(t.Context(), "k")
		wantDone(t, err, want)
	})
}

// Provision does not declare a node new if the node may have lost data.
func TestCE30_ProvisionOfANodeThatForgot(t *testing.T) {
	type row struct {
		holds []int // the nodes that granted the key to the holder
		away  []int
	}
	bubbles(t, 3, map[string]row{
		"beside one that is away":    {[]int{1, 2}, []int{1}},
		"beside one that is in use":  {[]int{1, 2}, nil},
		"beside others that are all": {[]int{0, 1, 2}, nil},
	}, func(t *testing.T, w *world, c row) {
		a, b := w.process(), w.stranger()
		lease := w.acquire(a.reaches(c.holds...), "k")
		synctest.Wait()
		a.refused()
		w.nodes[2].RestartEmpty()
		for _, i := range c.away {
			b.links[i].Set(coretest.Fate{Refuse: true})
		}
		wantErr(t, b.Provision(t.Context()), ErrUnavailable)
		w.refusedUntilOver(b, lease, 500*time.Millisecond)
	})
}

// Several processes may provision new nodes at the same time, and again when the nodes are in use.
func TestProvisionByMany(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		errs := make(chan error)
		for range 4 {
			p := w.stranger()
			go func() { errs <- p.Provision(t.Context()) }()
		}
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		p := w.process()
		w.acquire(p, "k")
		w.process()
	})
}

// A process that does not know of a longer lease may let a node vote too soon. So a node that knows the longest TTL
// reports it, and every process passes it on. The last case shows the limit: no node reports it.
func TestCE33_TwoTTLs(t *testing.T) {
	long, short := TTL(20*time.Second), TTL(5*time.Second)
	play := func(t *testing.T, hears func(y *process), late bool, want bool) {
		bubble(t, 3, func(t *testing.T, w *world) {
			var y *process
			if !late {
				y = w.process(short, untouched)
			}
			x := w.process(long)
			w.release(w.acquire(x.reaches(1, 2), "before")) // node 2 knows of 20s
			synctest.Wait()
			if late {
				y = w.process(short, untouched)
			}

			lease := w.acquire(x.reaches(0, 1), "k")
			x.refused()
			w.nodes[0].Flush()
			w.nodes[1].Flush()

			hears(y)
			overlap := false
			for lease.Context().Err() == nil && !overlap {
				if _, err := y.TryAcquire(t.Context(), "k"); err == nil {
					overlap = true
				}
				time.Sleep(100 * time.Millisecond)
			}

			if overlap != want {
				t.Errorf("two holders: %v, want %v", overlap, want)
			}
		})
	}

	all := func(*process) {}
	without2 := func(y *process) { y.reaches(0, 1) }
	t.Run("told by the node that remembers", func(t *testing.T) { play(t, all, false, false) })
	t.Run("told at the start", func(t *testing.T) { play(t, without2, true, false) })
	t.Run("never told, which is the limit", func(t *testing.T) { play(t, without2, false, true) })
}
