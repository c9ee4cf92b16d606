package core

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// With Linger the caller's context bounds the wait, and the lease only so much later.
func TestLinger(t *testing.T) {
	const ttl, grace = 10 * time.Second, 30 * time.Second
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(WithObserver((&recording{}).observer())), w.process(patient)
		for _, linger := range []time.Duration{grace, Forever} {
			lease := w.lingers(p, other, linger, grace)
			time.Sleep(ttl)
			if linger == Forever {
				wantValid(t, lease)
				w.release(lease)
			} else {
				wantReason(t, lease.Lost(), LossLinger)
			}
			if d := w.freeAfter(other, "k"); d != 0 {
				t.Errorf("Linger(%v): free only %v later", linger, d)
			}
		}
	})
}

// lingers is a lease of p whose caller has left, which it outlives for that long; others wait for it no longer than
// their contexts last.
func (w *world) lingers(p, other *process, linger, outlives time.Duration) *Lease {
	w.t.Helper()
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(w.t.Context(), key{}, "value"))
	lease := w.awaitUnder(ctx, p, "k", Linger(linger))
	waiting, giveUp := context.WithTimeout(w.t.Context(), time.Second)
	defer giveUp()
	if _, err := other.Acquire(waiting, "k", Linger(linger)); !errors.Is(err, context.DeadlineExceeded) {
		w.t.Errorf("the wait ended with %v", err)
	}
	time.Sleep(time.Minute) // as long as the caller's context goes on, it is an ordinary lease
	cancel()
	time.Sleep(outlives)
	if err := lease.Context().Err(); err != nil {
		w.t.Errorf("Linger(%v): the lease ended with its caller: %v", linger, context.Cause(lease.Context()))
	}
	if lease.Context().Value(key{}) != "value" {
		w.t.Error("the caller's values are gone")
	}
	return lease
}

// A lease that has ended does not follow its caller's context any more.
func TestLingerEndsWithTheLease(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		ctx := &counted{Context: t.Context(), done: make(chan struct{})}
		lease, err := p.Acquire(ctx, "k", Linger(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if ctx.following.Load() != 1 {
			t.Fatalf("%d follow the context", ctx.following.Load())
		}
		w.release(lease)
		if ctx.following.Load() != 0 {
			t.Error("a lease that is over follows the context")
		}
		lease, err = p.Acquire(ctx, "k", Linger(time.Minute), MaxHold(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		synctest.Wait() // whoever ended the lease goes on after that
		if ctx.following.Load() != 0 {
			t.Error("a lease that was lost follows the context")
		}
	})
}

// A counted context knows how many follow it.
type counted struct {
	context.Context
	done      chan struct{}
	following atomic.Int32
}

// Done has a channel of its own, so that the context package asks it and not the one inside.
func (c *counted) Done() <-chan struct{} { return c.done }

// AfterFunc is what the context package calls where a context has it.
func (c *counted) AfterFunc(f func()) (stop func() bool) {
	c.following.Add(1)
	unfollow := context.AfterFunc(c.Context, f)
	return func() bool {
		c.following.Add(-1)
		return unfollow()
	}
}
