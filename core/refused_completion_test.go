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

// This file tests that every later request about an attempt reports how the attempt ended. After a refusal, the next
// request does not report a success.

// takenFrom makes all nodes forget the lease, and grants the key to another process. The holder gets no notice of it.
func (w *world) takenFrom(p *process, key string) *Lease {
	w.t.Helper()
	synctest.Wait()
	for i := range w.nodes {
		w.forget(p, i, key)
	}
	other := w.acquire(w.process(), key)
	synctest.Wait()
	return other
}

// After a refused Complete, Release returns the same reason for the loss, whatever answers it gets and however often it
// is called.
func TestReleaseAfterARefusedCompletion(t *testing.T) {
	type row struct {
		nodes  int
		lose   func(w *world, p *process, lease *Lease)
		reason LossReason
		before func(w *world, p *process) // called before the release
	}
	taken := func(w *world, p *process, lease *Lease) { w.takenFrom(p, lease.Key()) }
	for name, c := range map[string]row{
		"taken, one node":    {1, taken, LossTaken, func(*world, *process) {}},
		"taken, three nodes": {3, taken, LossTaken, func(*world, *process) {}},
		"forgotten": {3, func(w *world, p *process, lease *Lease) {
			w.nodes[0].RestartEmpty()
			w.nodes[1].RestartEmpty()
		}, LossForgotten, func(*world, *process) {}},
		"no node answers any more": {3, taken, LossTaken, func(w *world, p *process) {
			for i := range w.nodes {
				w.nodes[i].Down()
			}
		}},
		"the answers to the release are lost": {3, taken, LossTaken, func(w *world, p *process) {
			for _, k := range p.links {
				k.Set(coretest.Fate{LoseReply: true}, wire.OpRelease)
			}
		}},
		"the Locker is closed": {3, taken, LossTaken, func(w *world, p *process) { p.Close(over()) }},
	} {
		bubbleNamed(t, name, c.nodes, func(t *testing.T, w *world) {
			p := w.process()
			lease := w.holds(p, "k")
			c.lose(w, p, lease)
			wantReason(t, lease.Complete(over(), []byte("result")), c.reason)
			c.before(w, p)
			for range 2 {
				wantReason(t, lease.Release(t.Context()), c.reason)
			}
		})
	}
}

// The nodes remember that they have refused a completion, even if the answer was lost.
func TestNodesRememberARefusedCompletion(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.holds(p, "k")
		other := w.takenFrom(p, "k")

		for _, k := range p.links {
			k.Set(coretest.Fate{LoseReply: true}, wire.OpComplete)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		wantErr(t, lease.Complete(ctx, nil), ErrUnavailable)

		p.mend()
		for _, k := range p.links {
			k.Next(coretest.Fate{LoseReply: true}, wire.OpRelease)
		}
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		wantReason(t, lease.Release(t.Context()), LossTaken)
		wantValid(t, other)
	})
}

// If a Complete is refused and a later one succeeds, Release returns nil.
func TestReleaseAfterACompletionThatSucceedsInTheEnd(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.holds(p, "k")
		contender := w.process()

		// The nodes forget the lease, and two attempts of a contender are granted the key by one node each. So the
		// completion is refused, but the contender has no lease.
		for i := range w.nodes {
			w.forget(p, i, "k")
		}
		for i := range 2 {
			askOf(contender.newLease(t.Context(), "k").attempt.newAcquireRound(false), i)
		}
		wantReason(t, lease.Complete(over(), nil), LossTaken)

		// The grants are taken back.
		for i := range 2 {
			w.change(p, i, "k", func(r *testutil.Resource) { *r = testutil.Resource{Before: -1} })
		}
		succeeds(t, lease.Complete(over(), nil))
		succeeds(t, lease.Release(t.Context()))
	})
}

// Do, TryDo and Once return ErrLost if a completion of the lease was refused, although fn returned nil: fn may not have
// been alone until its end.
func TestDoAfterARefusedCompletion(t *testing.T) {
	bubbles(t, 3, map[string]func(p *process, ctx context.Context, fn func(context.Context) error) error{
		"Do": func(p *process, ctx context.Context, fn func(context.Context) error) error { return p.Do(ctx, "k", fn) },
		"TryDo": func(p *process, ctx context.Context, fn func(context.Context) error) error {
			return p.TryDo(ctx, "k", fn)
		},
		"Once": func(p *process, ctx context.Context, fn func(context.Context) error) error {
			return p.Once(ctx, "k", fn)
		},
		"under a lease that it has": func(p *process, ctx context.Context, fn func(context.Context) error) error {
			var inner error
			outer := p.Do(ctx, "k", func(ctx context.Context) error {
				inner = p.Do(ctx, "k", fn, Reentrant(true))
				return nil
			})
			if !errors.Is(inner, ErrLost) {
				return inner
			}
			return outer
		},
		"nobody answers any more": func(p *process, ctx context.Context, fn func(context.Context) error) error {
			return p.Do(ctx, "k", func(ctx context.Context) error {
				err := fn(ctx)
				p.refused()
				return err
			})
		},
	}, func(t *testing.T, w *world, do func(*process, context.Context, func(context.Context) error) error) {
		p := w.process()
		err := do(p, t.Context(), func(ctx context.Context) error {
			w.takenFrom(p, "k")
			lease, _ := FromContext(ctx)
			wantReason(t, lease.Complete(over(), nil), LossTaken)
			return nil
		})
		wantReason(t, err, LossTaken)
	})
}

// If a release found no lease and left a tombstone, a repeated release does not succeed: the tombstone tells that the
// lease was lost before.
func TestRepeatedReleaseThatFoundNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.holds(p, "k")
		for _, k := range p.links { // the release leaves a tombstone for the lost renewal
			k.Set(coretest.Fate{Lose: true}, wire.OpRenew)
		}
		time.Sleep(p.p.renewEvery * 3 / 2)

		w.takenFrom(p, "k")
		for _, k := range p.links {
			k.Next(coretest.Fate{LoseReply: true}, wire.OpRelease)
		}
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		wantReason(t, lease.Release(t.Context()), LossTaken)
	})
}

// Complete of a revoked lease returns the reason revoked, even if another client has completed the key since, and even
// if only one node still remembers the revocation.
func TestCompletionOfARevokedLease(t *testing.T) {
	bubbles(t, 3, map[string]func(w *world, p, operator *process, lease *Lease){
		"at once": func(*world, *process, *process, *Lease) {},
		"when another holds the key": func(w *world, p, operator *process, lease *Lease) {
			w.pass(p.p.ttl + time.Second)
			w.acquire(operator, "k")
		},
		"when another has completed it": func(w *world, p, operator *process, lease *Lease) {
			w.pass(p.p.ttl + time.Second)
			w.complete(w.acquire(operator, "k"), "theirs")
			synctest.Wait()
		},
		"when others have forgotten": func(w *world, p, operator *process, lease *Lease) {
			w.nodes[0].RestartEmpty()
			w.nodes[1].RestartEmpty()
			for _, k := range p.links[:2] { // node 2, which knows why, must answer first
				k.Set(coretest.Fate{Delay: time.Millisecond})
			}
		},
	}, func(t *testing.T, w *world, meanwhile func(*world, *process, *process, *Lease)) {
		p, operator := w.process(unrenewed), w.process()
		lease := w.holds(p, "k")
		must(operator.Revoke(t.Context(), "k", lease.FencingToken()))
		meanwhile(w, p, operator, lease)
		wantReason(t, lease.Complete(over(), nil), LossRevoked)
	})
}

// A revocation that arrives after the release does not make a repeated release fail.
func TestRevokedAfterTheRelease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.holds(p, "k")
		for _, k := range operator.links {
			k.Next(coretest.Fate{Delay: 500 * time.Millisecond}, wire.OpRevoke)
		}
		revoked := make(chan error, 1)
		go func() {
			_, err := operator.Revoke(t.Context(), "k", lease.FencingToken())
			revoked <- err
		}()
		time.Sleep(100 * time.Millisecond)
		for _, k := range p.links {
			k.Next(coretest.Fate{LoseReply: true}, wire.OpRelease)
		}
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		wantErr(t, <-revoked, Operators.TokenMismatch)
		succeeds(t, lease.Release(t.Context()))
	})
}

// If a holder repeats Complete, the record stays for the whole retention from then on, even if another client has
// completed it meanwhile.
func TestRetentionOfARepeatedCompletionThatWasSettled(t *testing.T) {
	const retention = time.Minute
	bubble(t, 3, func(t *testing.T, w *world) {
		a, b := w.process(Retention(retention)), w.process()
		lease := w.acquire(a, "k")
		start := time.Now()
		wantErr(t, a.completeOn(lease, "result", 0), ErrUnavailable)

		for _, k := range b.links[1:] { // node 0, which has the record, must answer first
			k.Set(coretest.Fate{Delay: time.Millisecond})
		}
		_, err := b.Acquire(t.Context(), "k")
		wantErr(t, err, ErrDone)
		synctest.Wait()
		b.mend()

		w.pass(time.Until(start.Add(retention - 2*time.Second)))
		a.mend()
		succeeds(t, lease.Complete(over(), []byte("result")))
		done := time.Now()
		w.pass(retention - time.Second)
		_, err = b.reaches(0, 1).TryAcquire(t.Context(), "k") // the nodes on which b has completed the record
		if !errors.Is(err, ErrDone) {
			t.Errorf("%v, %v after Complete had returned nil, of a retention of %v", err, time.Since(done), retention)
		}
		b.mend()
		w.pass(2 * time.Second)
		w.acquire(b, "k")
	})
}
