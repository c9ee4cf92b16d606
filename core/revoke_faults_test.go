package core

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// This file tests that a revoked lease stays ended, whatever messages are lost, late or repeated.

// The holder of a revoked lease completes nothing, even before another process has had the key.
func TestRevokedHolderCompletesNothing(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		p, operator := w.process(unrenewed), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		r := must(operator.Revoke(t.Context(), "k", lease.FencingToken()))
		w.pass(r.Remaining + time.Second)
		wantErr(t, lease.Complete(t.Context(), nil), ErrLost)
		w.release(w.acquire(operator, "k"))
	})
}

// A lease may be extended while its revocation is under way. If its holder then sends nothing for longer than the
// tombstone of an ordinary attempt lasts, its next renewal still does not bring the lease back to free nodes.
func TestFreedHolderDoesNotComeBack(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(MaxHold(7500*time.Millisecond)), w.process()
		lease := w.acquire(p, "k")
		w.pass(6500 * time.Millisecond)
		for _, k := range operator.links {
			k.Set(coretest.Fate{Delay: 500 * time.Millisecond}, wire.OpRevoke)
		}
		extended := make(chan error, 1)
		time.AfterFunc(250*time.Millisecond, func() { extended <- lease.Extend(7600 * time.Millisecond) })
		r := must(operator.Revoke(t.Context(), "k", lease.FencingToken()))
		if err := <-extended; err != nil || r.Remaining < lease.remaining() {
			t.Errorf("%v; %v was said, the holder trusts for %v", err, r.Remaining, lease.remaining())
		}
		w.pass(operator.p.tombstone + 3800*time.Millisecond) // 3.8s: the rest of the lease that the operator saw
		if err := lease.Extend(10 * time.Second); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		wantReason(t, lease.Lost(), LossRevoked)
	})
}

// One node that knows the revocation is enough to end the lease, if another node has forgotten it and a third one has
// never got it.
func TestOneNodeTellsTheRevokedHolder(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		operator.links[2].Set(coretest.Fate{Refuse: true}, wire.OpRevoke)
		r := must(operator.Revoke(t.Context(), "k", lease.FencingToken()))
		w.nodes[0].RestartEmpty() // a renewal brings the lease back there
		time.Sleep(r.Remaining)
		wantReason(t, lease.Lost(), LossRevoked)
	})
}

// If the nodes that do not answer may be a quorum for the lease, Revoke returns ErrUnavailable, because the key may be
// held under that token.
func TestRevokeSaysWhatItCannotKnow(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(unrenewed), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		operator.links[0].Set(coretest.Fate{Refuse: true}, wire.OpRevoke)
		operator.links[1].Set(coretest.Fate{Refuse: true}, wire.OpRevoke)
		_, err := operator.Revoke(t.Context(), "k", lease.FencingToken())
		wantErr(t, err, ErrUnavailable)

		operator.links[0].Mend()
		operator.links[1].Mend()
		w.nodes[0].Down()
		w.pass(10 * time.Millisecond)
		_, err = operator.Revoke(t.Context(), "k", lease.FencingToken())
		wantErr(t, err, ErrUnavailable)
		for _, wrong := range []uint64{0, lease.FencingToken() + 1} {
			_, err = operator.Revoke(t.Context(), "k", wrong)
			wantErr(t, err, Operators.TokenMismatch)
		}
		wantValid(t, lease)
		w.nodes[0].Up()
		w.pass(time.Second)
		must(operator.Revoke(t.Context(), "k", lease.FencingToken()))
	})
}

// A revocation that arrives twice, the second time late, does not end the lease of the next holder.
func TestLateRevocation(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other, operator := w.process(), w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		for _, k := range operator.links {
			k.Set(coretest.Fate{Twice: true, Delay: 12 * time.Second}, wire.OpRevoke)
		}
		_, err := operator.Revoke(t.Context(), "k", lease.FencingToken())
		wantErr(t, err, ErrUnavailable) // the answers to the first requests are lost
		next := must(other.Acquire(t.Context(), "k"))
		w.pass(time.Minute)
		wantValid(t, next)
	})
}

// If two operators revoke a lease at once, at least one of the calls succeeds, and the lease ends.
func TestTwoOperators(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, one, two := w.process(), w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		for i, k := range one.links { // each operator is the first on one node
			k.Set(coretest.Fate{Delay: time.Duration(i) * time.Millisecond}, wire.OpRevoke)
			two.links[i].Set(coretest.Fate{Delay: time.Duration(2-i) * time.Millisecond}, wire.OpRevoke)
		}
		errs := make(chan error, 2)
		for _, p := range []*process{one, two} {
			go func() {
				_, err := p.Revoke(t.Context(), "k", lease.FencingToken())
				errs <- err
			}()
		}
		if a, b := <-errs, <-errs; a != nil && b != nil || a != nil && !errors.Is(a, Operators.TokenMismatch) || b != nil && !errors.Is(b, Operators.TokenMismatch) {
			t.Errorf("%v, %v", a, b)
		}
		<-lease.Context().Done()
		wantReason(t, lease.Lost(), LossRevoked)
	})
}

// After a max TTL, the holder of a completed key no longer brings the record to a node that did not confirm it. So the
// record stays away if an operator drops it then.
func TestForgottenRecordStaysAway(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		p.links[2].Set(coretest.Fate{Refuse: true}, wire.OpComplete)
		succeeds(t, lease.Complete(t.Context(), nil))
		w.pass(p.p.MaxTTL + 3*p.p.nodeTimeout)
		for _, k := range p.links {
			k.Mend()
		}
		succeeds(t, operator.ForgetRecord(t.Context(), "k", lease.FencingToken()))
		w.pass(time.Minute)
		w.release(w.acquire(p, "k"))
	})
}

// A node that got the revocation, but never had the lease, refuses the completion, too.
func TestRevokedHolderCompletesNothingElsewhere(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		p.links[2].Next(coretest.Fate{Refuse: true}, wire.OpAcquire)
		lease := w.holds(p, "k")
		operator.links[1].Set(coretest.Fate{Refuse: true}, wire.OpRevoke)
		must(operator.Revoke(t.Context(), "k", lease.FencingToken()))
		wantErr(t, lease.Complete(over(), nil), ErrLost)
	})
}

// If the nodes have different tokens for a lease, it can be revoked with each of these tokens, and with no other.
func TestRevokeWhereTokensDiffer(t *testing.T) {
	bubbles(t, 3, map[string]int{"the holder's": 2, "one that a node has": 0}, func(t *testing.T, w *world, of int) {
		p, operator := w.process(), w.process()
		lease := w.holds(p, "k")
		for i := range 2 {
			w.setCounter(p, i, "k", int64(lease.attempt.token)+1+int64(i))
		}
		_, err := operator.Revoke(t.Context(), "k", lease.attempt.token+3)
		wantErr(t, err, Operators.TokenMismatch)
		must(operator.Revoke(t.Context(), "k", uint64(w.resource(p, of, "k").Counter)))
		w.pass(5 * time.Second)
		wantReason(t, lease.Lost(), LossRevoked)
	})
}

// Revocation.Remaining covers the time for which the holder trusts its lease, even if the nodes that confirmed the
// lease last do not answer: one has forgotten it, the other one is out of reach.
func TestRevocationLeftWhereNodesForgot(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.holds(p, "k")
		p.links[2].Set(coretest.Fate{Refuse: true}, wire.OpRenew)
		w.pass(5 * time.Second)
		operator.links[1].Set(coretest.Fate{Refuse: true}, wire.OpRevoke)
		operator.links[2].Set(coretest.Fate{Delay: 500 * time.Millisecond}, wire.OpRevoke)
		operator.links[0].Set(coretest.Fate{Delay: 500 * time.Millisecond}, wire.OpRevoke)
		time.AfterFunc(250*time.Millisecond, w.nodes[0].Flush)
		p.cut()
		r := must(operator.Revoke(t.Context(), "k", lease.FencingToken()))
		if r.Remaining < lease.remaining() {
			t.Errorf("%v was said, and the holder trusts its lease for %v", r.Remaining, lease.remaining())
		}
	})
}

// ForgetRecord drops a record also on a node whose clock is so far ahead that the retention seems to be over.
func TestForgetARecordThatLooksOver(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(Retention(time.Hour))
		lease := w.acquire(p, "k")
		succeeds(t, lease.Complete(over(), nil))
		synctest.Wait()
		w.nodes[2].StepClock(90 * time.Minute)
		succeeds(t, p.ForgetRecord(t.Context(), "k", lease.FencingToken()))
		w.nodes[2].StepClock(-90 * time.Minute)
		w.pass(2 * p.p.MaxTTL)
		w.release(w.acquire(p, "k"))
	})
}
