package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// These tests are counterexamples: each schedule breaks a plausible variant of the protocol. Nodes are counted from 0.
// In a bubble, time stands still while a schedule runs, so two clients that ask at the same moment propose the same
// token. Then the counters of the nodes have to decide.

// slowly contains options that allow requests to be late by seconds.
var slowly = []Option{WithClockWindow(0), withNodeTimeout(5 * time.Second), withRenewEvery(time.Second)}

// partly makes p acquire key from node i alone and release it. The token stays behind on the node, as after a lease
// that was used.
func (w *world) partly(p *process, i int, key string) {
	w.t.Helper()
	lease := p.newLease(w.t.Context(), key)
	if v := askOf(lease.attempt.newAcquireRound(false), i); v.Verdict != wire.Granted {
		w.t.Fatalf("node %d: %v %v", i, Verdict(v.Verdict), v.Err)
	}
	lease.attempt.completionSent = true
	askOf(lease.attempt.newReleaseRound(0), i)
}

// Without write-back, the next quorum does not know a token that only one node has.
func TestCE1_TokenIsWrittenBack(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		x, a, b := w.process(), w.process(), w.process()
		w.partly(x, 0, "k")
		a.links[2].Set(coretest.Fate{Refuse: true})
		first := w.acquire(a, "k")
		w.release(first)
		b.links[0].Set(coretest.Fate{Refuse: true})
		second := w.acquire(b, "k")
		wantLaterToken(t, second, first)
	})
}

// A write-back counts only on a node that still has the lease.
func TestCE2_WriteBackCountsOnlyOwnNodes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		x, a, b := w.process(), w.process(), w.process()
		w.partly(x, 0, "k")
		a.links[2].Set(coretest.Fate{Refuse: true})
		a.links[1].Next(coretest.Fate{Delay: 300 * time.Millisecond}, wire.OpRenew) // within the clock window

		first := trying(a.Locker, t.Context(), "k")
		synctest.Wait() // nodes 0 and 1 have granted the key, and the write-back is under way to node 1

		w.forget(a, 1, "k")
		b.links[0].Set(coretest.Fate{Refuse: true})
		second := w.acquire(b, "k")
		wantErr(t, testutil.Receive(t, first).err, ErrHeld)
		if w.owner(b, 1, "k") != second.name() {
			t.Fatal("the write-back took the node from its holder")
		}
	})
}

// A write-back never takes a node, not even a free one.
func TestCE3_WriteBackTakesNoNode(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		x, a := w.process(), w.process()
		w.partly(x, 0, "k")
		a.links[2].Set(coretest.Fate{Refuse: true})
		a.links[1].Next(coretest.Fate{Delay: 300 * time.Millisecond}, wire.OpRenew)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := trying(patientTry(a.Locker), ctx, "k")
		synctest.Wait()

		w.forget(a, 1, "k")
		a.links[1].Set(coretest.Fate{Lose: true}, wire.OpRelease) // a release would remove the traces of the write-back
		wantErr(t, testutil.Receive(t, first).err, context.DeadlineExceeded)
		if got := w.owner(a, 1, "k"); got != "" {
			t.Fatalf("the write-back took the node for %s", got)
		}
	})
}

// The token is the greatest that a granting node gave, not the greatest that a quorum already stores.
func TestCE4_TokenIsTheGreatest(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, a := w.process(), w.process()
		p.links[2].Set(coretest.Fate{Refuse: true})
		var last *Lease
		for range 3 {
			last = w.acquire(p, "k")
			w.release(last)
		}
		a.links[0].Set(coretest.Fate{Refuse: true})
		wantLaterToken(t, w.acquire(a, "k"), last)
	})
}

// A counter that was lost starts again from the clock, above the value that it had reached.
func TestCE5_LostCounterStartsFromTheClock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(), w.process()
		a.links[2].Set(coretest.Fate{Refuse: true})
		first := w.acquire(a, "k")
		w.release(first)
		w.nodes[1].RestartEmpty()
		b.links[0].Set(coretest.Fate{Refuse: true})
		second := w.await(b, "k")
		wantLaterToken(t, second, first)
	})
}

// emptied checks that a node that loses its memory during a lease does not help another process to get the key while
// the lease lasts.
func emptied(t *testing.T, lose func(w *world, holder *process)) {
	t.Helper()
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, other := w.process(), w.process()
		holder.links[2].Set(coretest.Fate{Refuse: true})
		lease := w.acquire(holder, "k")
		holder.cut() // the holder must not bring the lease back
		lose(w, holder)
		other.links[0].Set(coretest.Fate{Refuse: true})
		w.refusedUntilOver(other, lease, 100*time.Millisecond)
		holder.mend()
		w.await(other, "k")
	})
}

func TestCE6_SecondRestartInsideTheQuarantine(t *testing.T) {
	emptied(t, func(w *world, _ *process) {
		w.nodes[1].RestartEmpty()
		contact(w)
		w.nodes[1].RestartEmpty()
	})
}

// contact makes a third process ask node 1, so that the node's quarantine begins.
func contact(w *world) {
	third := w.stranger()
	for _, i := range []int{0, 2} {
		third.links[i].Set(coretest.Fate{Refuse: true})
	}
	third.TryAcquire(w.t.Context(), "other")
}

// A warm script cache does not prove that a node kept its memory: the cache survives promotions and, in some versions,
// restarts.
func TestCE7_WarmScriptCache(t *testing.T) {
	emptied(t, func(w *world, holder *process) {
		w.forget(holder, 1, "k") // the replica had not received the lease
		w.nodes[1].Promote()     // it becomes primary, with all scripts cached
	})
}

func TestCE8_FailoverAndBack(t *testing.T) {
	emptied(t, func(w *world, holder *process) {
		w.nodes[1].Promote()
		w.forget(holder, 1, "k")
		w.nodes[1].Promote() // the same server as before, with another history
	})
}

func TestCE10_Flush(t *testing.T) {
	emptied(t, func(w *world, _ *process) { w.nodes[1].Flush() })
}

func TestCE11_ClockStepAfterRestart(t *testing.T) {
	emptied(t, func(w *world, _ *process) {
		w.nodes[1].RestartEmpty()
		contact(w)
		w.nodes[1].StepClock(30 * time.Second) // as NTP may do after boot
		contact(w)
		w.nodes[1].StepClock(-30 * time.Second)
	})
}

func TestRestartedEmptyInsideALease(t *testing.T) {
	emptied(t, func(w *world, _ *process) { w.nodes[1].RestartEmpty() })
}

// A renewal must not bring a lease to a node that forgot the partial grant of another attempt.
func TestCE12_HealingOnlyWhatWasConfirmedThere(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		opts := append(slowly, WithMaxTTL(40*time.Second)) // so that the token clamp spans the delay of A's request
		b, a := w.process(opts...), w.process(opts...)
		b.links[0].Set(coretest.Fate{Refuse: true})
		bLease := w.acquire(b, "k") // on nodes 1 and 2, where it expires at 10s
		synctest.Wait()             // node 0 has refused, too
		b.set(coretest.Fate{Refuse: true}, wire.OpRenew)
		time.Sleep(6 * time.Second)

		a.links[1].Next(coretest.Fate{Delay: 4200 * time.Millisecond}, wire.OpAcquire)
		a.links[2].Set(coretest.Fate{Refuse: true})
		late := trying(a.Locker, t.Context(), "k")
		time.Sleep(50 * time.Millisecond)

		w.nodes[0].RestartEmpty() // it forgets that it granted the key to A
		b.links[0].Mend()
		b.links[2].Mend() // B's next renewal reaches 0 and 2
		aLease := testutil.Receive(t, late).lease
		if aLease == nil {
			t.Fatal("the schedule is off: A was not granted nodes 0 and 1")
		}
		wantNotBoth(t, aLease, bLease)
	})
}

// The node decides whether a renewal may bring a lease back, because a renewal that is sent in time may arrive too
// late.
func TestCE13_HealingJudgedByTheNode(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		b, a := w.process(slowly...), w.process(slowly...)
		b.e.jitter = func(n int64) int64 { return n / 2 } // a renewal at each full second
		lease := w.acquire(b, "k")                        // expires on node 0 at 10s, never renewed there
		b.links[0].Set(coretest.Fate{Refuse: true}, wire.OpRenew)
		time.Sleep(8500 * time.Millisecond)

		// The first of them is sent at 9s and arrives at 12s.
		b.links[0].Sequence(wire.OpRenew, coretest.Fate{Delay: 3 * time.Second}, coretest.Fate{Refuse: true})
		time.Sleep(2 * time.Second)

		a.links[1].Set(coretest.Fate{Refuse: true})
		a.links[2].Set(coretest.Fate{Refuse: true})
		a.links[0].Set(coretest.Fate{Lose: true}, wire.OpRelease)
		go a.TryAcquire(t.Context(), "k") // node 0 grants the key, and then forgets it
		synctest.Wait()

		if owner := w.owner(a, 0, "k"); owner == "" || owner == lease.name() {
			t.Fatalf("the schedule is off: node 0 belongs to %q", owner)
		}

		w.nodes[0].Flush() // a restart would break the connection of the late renewal
		before := w.nodes[0].Calls()
		time.Sleep(2 * time.Second)
		if after := w.nodes[0].Calls(); after["EVALSHA"] == before["EVALSHA"] {
			t.Fatalf("the schedule is off: the late renewal has not arrived: %v, then %v", before, after)
		}

		if owner := w.owner(b, 0, "k"); owner == lease.name() {
			t.Fatal("a renewal that came late took a node that had forgotten another's grant")
		}
	})
}

// Renewals do not count while an old primary may still serve.
func TestCE14_RenewalWithinTheReplicaLag(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		lag := 9 * time.Second
		p := w.process(WithRestartGuard(true), WithReplicaLag(lag))
		lease := w.acquire(p, "k")
		w.nodes[0].Promote()
		until := lease.ValidUntil()
		testutil.Receive(t, lease.Context().Done())
		wantErr(t, context.Cause(lease.Context()), ErrLost)
		if late := time.Since(until); late > 0 {
			t.Fatalf("the lease outlived what the old primary knew by %v", late)
		}
	})
}

func TestRenewalAfterTheReplicaLag(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithRestartGuard(true), WithReplicaLag(4*time.Second))
		lease := w.acquire(p, "k")
		w.nodes[0].Promote()
		time.Sleep(time.Minute)
		wantValid(t, lease)
	})
}

// A lease survives a server clock that steps ahead and back, and no other process gets the key meanwhile.
func TestCE15_TransientClockStep(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		holder, other := w.process(), w.process()
		lease := w.acquire(holder, "k")
		w.nodes[0].StepClock(30 * time.Second)
		_, err := other.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		w.nodes[0].StepClock(-30 * time.Second)
		_, err = other.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrHeld)
		time.Sleep(time.Minute)
		wantValid(t, lease)
	})
}

// A request that arrives after the release of its attempt leaves nothing behind.
func TestCE16_LateAcquireAfterRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.links[1].Next(coretest.Fate{Delay: 300 * time.Millisecond}, wire.OpAcquire)
		w.release(w.acquire(p, "k")) // on nodes 0 and 2; the release reaches node 1 first
		time.Sleep(time.Second)
		w.wantFree(p, "k", 1)
	})
}

func TestCE16_LateAcquireAfterGivingUp(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.next(coretest.Fate{Delay: 400 * time.Millisecond}, wire.OpAcquire)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := p.Acquire(ctx, "k")
		wantErr(t, err, context.DeadlineExceeded)
		time.Sleep(time.Second)
		w.wantFree(p, "k")
	})
}

// Each attempt has a name of its own, so a late release of an old attempt does not free a younger lease.
func TestCE17_LateReleaseOfAnOlderAttempt(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		p.links[0].Next(coretest.Fate{Delay: 400 * time.Millisecond}, wire.OpRelease)
		first := w.acquire(p, "k")
		go first.Release(t.Context())
		synctest.Wait()
		w.forget(p, 0, "k")
		p.e.localQueue.PassOn(first.attempt.lock.Resource()) // otherwise its turn would last as long as the release
		second := w.acquire(p, "k")
		time.Sleep(time.Second)
		if w.owner(p, 0, "k") != second.name() {
			t.Fatal("a late release freed a younger lease")
		}
	})
}

// A token stays near the server's clock, however wrong the client's clock is. So a node that forgot a token gives a
// greater one when it votes again.
func TestCE18_TokenClamp(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithRestartGuard(true), WithClockWindow(0))
		ask := func(key string, ahead time.Duration) quorum.Vote {
			lease := p.newLease(t.Context(), key)
			wall := time.Now().Add(ahead)
			q := lease.attempt.lock.Acquire(p.p.ttlMillis, wire.Acquire{ProposedToken: wire.StampOf(wall)})
			return must(coretest.Ask(p.e.Nodes[0].Client, p.e.Head.Load(), wire.NoMemory, wall, q))[0]
		}

		before := ask("k", time.Hour)
		w.nodes[0].RestartEmpty()
		ask("other", 0)
		time.Sleep(p.p.MaxTTL + time.Millisecond)
		after := ask("k", -time.Hour)
		if before.Verdict != wire.Granted || after.Verdict != wire.Granted || after.Token <= before.Token {
			t.Fatalf("tokens %d (%v), then %d (%v)", before.Token, before.Verdict, after.Token, after.Verdict)
		}
	})
}

// A renewal outside of the clock window does not count, because the node would make the lease expire early.
func TestCE20_RenewalOutsideTheClockWindow(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		holder, other := w.process(), w.process()
		lease := w.acquire(holder, "k")

		w.nodes[0].StepClock(-3 * time.Second)
		time.Sleep(5 * time.Second) // a renewal is due meanwhile
		w.nodes[0].StepClock(3 * time.Second)

		for lease.Context().Err() == nil && time.Until(lease.ValidUntil()) < 7*time.Second {
			if _, err := other.TryAcquire(t.Context(), "k"); err == nil {
				t.Fatalf("a second holder, while the first is valid for another %v", time.Until(lease.ValidUntil()))
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}
