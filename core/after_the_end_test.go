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

// These tests check what the end of an attempt promises, and what it must not promise.

// The tombstone is written even if the server is out of memory, so that a late request is not granted.
func TestLateRequestToAServerOutOfMemory(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		p.links[0].Next(coretest.Fate{Delay: 300 * time.Millisecond}, wire.OpAcquire)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		w.refuse(0, refusingWrites{outOfMemory, 0})
		_, err := p.Acquire(ctx, "k")
		wantErr(t, err, context.DeadlineExceeded)
		w.pass(100 * time.Millisecond)
		w.nodes[0].OnCall(nil)
		w.pass(200 * time.Millisecond)
		w.release(w.acquire(other, "k"))
	})
}

// Every release of a revoked lease fails, even if a request or a reply was lost, and if a node does not know of the
// revocation.
func TestRevokedHolderReleasesAgain(t *testing.T) {
	bubbles(t, 3, map[string]coretest.Fate{
		"the first is answered": {}, "an answer is lost": {LoseReply: true}, "a request is lost": {Refuse: true},
	}, func(t *testing.T, w *world, first coretest.Fate) {
		p, operator := w.process(), w.process()
		lease := w.holds(p, "k")
		operator.links[2].Set(coretest.Fate{Refuse: true}, wire.OpRevoke)
		must(operator.Revoke(t.Context(), "k", lease.FencingToken()))
		p.links[0].Next(first, wire.OpRelease)
		p.links[1].Next(first, wire.OpRelease)
		for range 3 {
			err := lease.Release(t.Context())
			if err == nil {
				t.Error("released, as if nobody had ended it")
			}
		}
		wantReason(t, lease.Release(t.Context()), LossRevoked)
	})
}

// After Close it is unknown whether an unconfirmed release has arrived, so the error is ErrClosed.
func TestReleaseAfterClose(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease, released := w.holds(p, "k"), w.holds(p, "other")
		w.release(released)
		p.set(coretest.Fate{Refuse: true}, wire.OpRelease)
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wantErr(t, lease.Release(t.Context()), ErrClosed)
		w.release(released) // it was confirmed before Close
	})
}

// A node on which the lease has run out cannot keep a cooldown, and does not confirm one, however often it is asked.
func TestNoCooldownWhereTheLeaseRanOut(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.holds(p, "k")
		p.links[1].Set(coretest.Fate{Refuse: true})
		w.pass(time.Minute)
		p.links[1].Mend()
		p.links[2].Set(coretest.Fate{Refuse: true})
		for range 3 {
			wantErr(t, lease.Release(t.Context(), Cooldown(time.Minute)), ErrUnavailable)
		}
		p.links[2].Mend()
		w.pass(2 * p.p.nodeTimeout) // the release is also repeated in the background
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		w.pass(50 * time.Second)
		w.wantRefused(other, "k", ErrHeld)
	})
}

// After a completion was sent, no cooldown is confirmed that no quorum keeps.
func TestNoCooldownAfterACompletion(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		lease := w.holds(p, "refused")
		for i := range w.nodes {
			w.setCounter(p, i, "refused", int64(lease.attempt.token)+1)
		}
		wantErr(t, lease.Complete(over(), nil), ErrLost)
		if err := lease.Release(t.Context(), Cooldown(time.Minute)); err == nil {
			t.Error("nil after a completion that was refused")
		}
		w.release(w.acquire(other, "refused"))

		lease = w.holds(p, "completed")
		succeeds(t, lease.Complete(over(), nil))
		wantErr(t, lease.Release(t.Context(), Cooldown(time.Minute)), ErrReleased)
		w.release(lease)

		lease = w.holds(p, "unanswered") // no completion arrives, so the cooldown is kept
		p.set(coretest.Fate{Refuse: true}, wire.OpComplete)
		wantErr(t, lease.Complete(over(), nil), ErrUnavailable)
		w.releaseFor(lease, time.Minute)
		w.pass(59 * time.Second)
		w.wantRefused(other, "unanswered", ErrHeld)
	})
}

// A key in its cooldown, or with the rest of a revoked lease, stays taken even if clocks jump by less than a day and
// back.
func TestClocksJumpWhileAKeyIsKept(t *testing.T) {
	for name, end := range map[string]func(w *world, operator *process, lease *Lease){
		"released with a cooldown": func(w *world, _ *process, lease *Lease) { w.releaseFor(lease, time.Hour) },
		"revoked": func(w *world, operator *process, lease *Lease) {
			must(operator.Revoke(w.t.Context(), "k", lease.FencingToken()))
		},
		"revoked, beside a record": func(w *world, operator *process, lease *Lease) {
			for i := range w.nodes {
				w.change(operator, i, "k", func(r *testutil.Resource) { recorded(5)(r); r.Record.KeptUntil = 1 })
			}
			must(operator.Revoke(w.t.Context(), "k", lease.FencingToken()))
		},
	} {
		bubbleNamed(t, name, 3, func(t *testing.T, w *world) {
			p, other := w.process(), w.process()
			lease := w.holds(p, "k")
			p.cut()
			if name == "released with a cooldown" {
				for _, k := range p.links {
					k.Mend()
				}
			}

			end(w, other, lease)
			synctest.Wait()

			for _, n := range w.nodes[1:] {
				n.StepClock(23 * time.Hour)
			}

			w.pass(time.Second)
			other.TryAcquire(t.Context(), "another key") // makes Redis look for expired keys
			for _, n := range w.nodes[1:] {
				if _, err := n.Exec("GET", p.e.Keys.Resource("k")); err != nil {
					t.Error(err)
				}
				n.StepClock(-23 * time.Hour)
			}
			w.pass(time.Second)
			w.wantRefused(other, "k", ErrHeld)
		})
	}
}

// A token that an operator may have seen, because a quorum had granted it, is not granted again.
func TestSeenTokensAreNotGrantedAgain(t *testing.T) {
	bubbles(t, 3, map[string]bool{"by an operator": false, "by an operator, of a bare quorum": true}, func(t *testing.T, w *world, bare bool) {
		p, other := w.process(), w.process()
		links := p.links
		if bare {
			askOf(other.newLease(t.Context(), "k").attempt.newAcquireRound(false), 2)
			links = links[:2]
		}
		for _, k := range links {
			k.Next(coretest.Fate{ReplyDelay: 300 * time.Millisecond}, wire.OpAcquire)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		go p.Acquire(ctx, "k")
		w.pass(100 * time.Millisecond)
		shown := w.inspect(other, "k").Holder

		w.pass(time.Second)
		if shown == nil {
			t.Fatal("the schedule is off: a quorum has not granted")
		}
		w.wantSpent(p, shown.Token)
	})
}

// wantSpent checks that no quorum would grant the token again.
func (w *world) wantSpent(p *process, token uint64) {
	w.t.Helper()
	var counters []uint64
	spent := 0
	for i := range w.nodes {
		counters = append(counters, uint64(w.resource(p, i, "k").Counter))
		if counters[i] >= token {
			spent++
		}
	}
	if spent < quorum.Of(len(w.nodes)) {
		w.t.Errorf("a quorum would grant %d again: the counters are %d", token, counters)
	}
}
