package core

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// What an operator has ended stays so, whatever is lost, late, or tried again.

// A holder that was taken from completes nothing, even before somebody else has had the key.
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

// A holder that is extended after the operator looked, and sends nothing then for longer than an attempt that ends by itself
// is remembered, does not come back onto nodes that are free.
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
		w.pass(operator.p.tombstone + 3800*time.Millisecond) // and what the operator saw to be left
		if err := lease.Extend(10 * time.Second); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		wantReason(t, lease.Lost(), LossRevoked)
	})
}

// One node that knows is enough, where others have forgotten it, or never heard of it.
func TestOneNodeTellsTheRevokedHolder(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		operator.links[2].Set(coretest.Fate{Refuse: true}, wire.OpRevoke)
		r := must(operator.Revoke(t.Context(), "k", lease.FencingToken()))
		w.nodes[0].RestartEmpty() // its renewal brings the lease back there
		time.Sleep(r.Remaining)
		wantReason(t, lease.Lost(), LossRevoked)
	})
}

// Nodes that are away may be those that make a quorum: nobody knows that the key is not held under that token.
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

// A request that is late, or comes twice, ends nobody else's lease.
func TestLateRevocation(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other, operator := w.process(), w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		for _, k := range operator.links {
			k.Set(coretest.Fate{Twice: true, Delay: 12 * time.Second}, wire.OpRevoke)
		}
		_, err := operator.Revoke(t.Context(), "k", lease.FencingToken())
		wantErr(t, err, ErrUnavailable) // the answers that are heard are those of the second time
		next := must(other.Acquire(t.Context(), "k"))
		w.pass(time.Minute)
		wantValid(t, next)
	})
}

// Two operators at once: one of them at least is told that it is done, and it is.
func TestTwoOperators(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, one, two := w.process(), w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		for i, k := range one.links { // each is the first on some node
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

// A record that a node did not confirm is brought to it by its holder for a max TTL, and by nobody after that.
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

// A node that never had the lease refuses its completion, too.
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

// A lease on whose token the nodes do not agree can be ended under any that a node has for it, and under no other.
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

// The nodes that answer may not be those that confirmed the lease last: one has forgotten it, the other is away.
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

// A record is dropped also where a clock is so far ahead that it looks over.
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
