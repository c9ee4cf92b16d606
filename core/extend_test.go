package core

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

var fixed = FixedLease(true)

// extending makes a process whose leases have no watchdog and may last for a minute.
func (w *world) extending(opts ...Option) *process {
	w.t.Helper()
	return w.process(append([]Option{fixed, WithMaxTTL(time.Minute)}, opts...)...)
}

// trustOf is for how long p trusts a lease of that TTL, from when it is asked for.
func (p *process) trustOf(t *testing.T, d time.Duration) time.Duration {
	t.Helper()
	long, err := p.p.lasting(d)
	if err != nil {
		t.Fatal(err)
	}
	return long.validity - long.margin
}

func TestExtend(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		p, other := w.extending(WithObserver(o.observer())), w.process(patient, WithMaxTTL(time.Minute))
		lease := w.acquire(p, "k")
		time.Sleep(5 * time.Second)
		left := lease.left()
		for _, k := range p.links {
			k.next(fate{replyDelay: 400 * time.Millisecond}, renewScript)
		}
		sent := time.Now()
		if err := lease.Extend(t.Context(), 30*time.Second); err != nil {
			t.Fatal(err)
		}
		if got, want := lease.ValidUntil(), sent.Add(p.trustOf(t, 30*time.Second)); !got.Equal(want) {
			t.Errorf("trusted %v longer than from the request", got.Sub(want))
		}
		if got := lease.freedAfter(); got != 30*time.Second-time.Since(sent) {
			t.Errorf("free after %v", got)
		}
		ops, outs := o.of(t, OpRenew)
		if len(ops) != 1 || ops[0].Token != lease.FencingToken() || outs[0].Err != nil || outs[0].Margin != left || len(outs[0].Nodes) != 3 {
			t.Errorf("observed %+v, %+v", ops, outs)
		}
		time.Sleep(20 * time.Second)
		wantValid(t, lease)
		testutil.Receive(t, lease.Context().Done())
		wantReason(t, lease.Lost(), LossExpired)
		w.freeAfter(other, "k")
		wantBetween(t, "free after", time.Since(sent), 30*time.Second, 30*time.Second+soon)
	})
}

// A lease is never shortened, neither for its holder nor on the nodes.
func TestExtendByLessThanIsLeft(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.extending(TTL(30*time.Second)), w.process(patient, WithMaxTTL(time.Minute))
		start := time.Now()
		lease := w.acquire(p, "k")
		synctest.Wait()
		until := lease.ValidUntil()
		if err := lease.Extend(t.Context(), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if !lease.ValidUntil().Equal(until) {
			t.Errorf("trusted for %v", time.Until(lease.ValidUntil()))
		}
		w.freeAfter(other, "k")
		wantBetween(t, "free after", time.Since(start), 30*time.Second, 30*time.Second+soon)
	})
}

// A node that lost the lease gets it back.
func TestExtendHeals(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.extending()
		lease := w.acquire(p, "k")
		synctest.Wait()
		w.forget(p, 1, "k")
		if err := lease.Extend(t.Context(), 20*time.Second); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if owner := w.owner(p, 1, "k"); owner != lease.id {
			t.Errorf("the node's owner is %q", owner)
		}
	})
}

func TestBadExtension(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.extending(MaxHold(40 * time.Second))
		renewals := p.counting(renewScript)
		lease := w.acquire(p, "k")
		refused := func(lease *Lease, d time.Duration, why string) {
			t.Helper()
			until := lease.ValidUntil()
			err := lease.Extend(t.Context(), d)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), why) {
				t.Errorf("by %v: %v, want %q", d, err, why)
			}
			if _, ok := errors.AsType[*OpError](err); ok {
				t.Errorf("by %v: looks like an outcome: %v", d, err)
			}
			if !lease.ValidUntil().Equal(until) {
				t.Errorf("by %v: the lease has changed", d)
			}
		}
		refused(lease, 0, "TTL is 0s")
		refused(lease, -time.Second, "TTL is -1s")
		refused(lease, 61*time.Second, "TTL 1m1s is more than the max TTL 1m0s")
		refused(lease, time.Second, "clock window 500ms is more than a quarter of the TTL 1s")
		refused(lease, 2*time.Second, "which a node timeout of 1s uses up")
		refused(lease, 41*time.Second, "41s is more than the 40s that the lease may still be held (max_hold)")
		plain, err := p.Acquire(t.Context(), "plain", FixedLease(false))
		if err != nil {
			t.Fatal(err)
		}
		refused(plain, 10*time.Second, "FixedLease(true)")
		w.release(plain)
		synctest.Wait()
		if n := renewals.Load(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// No lease is trusted for longer than the max hold, however often it is extended; nor after its caller for longer than
// it may linger.
func TestExtendWithinMaxHold(t *testing.T) {
	type bound struct {
		opt    CallOption
		reason LossReason
	}
	bubbles(t, 3, map[string]bound{
		"max hold": {MaxHold(20 * time.Second), LossMaxHold},
	}, func(t *testing.T, w *world, c bound) {
		p := w.extending()
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		lease := w.awaitUnder(ctx, p, "k", c.opt)
		cancel()
		if c.reason == LossMaxHold {
			w.release(lease)
			lease = w.await(p, "k", c.opt)
		}
		extended := 0
		for lease.Context().Err() == nil {
			if err := lease.Extend(t.Context(), 4*time.Second); err == nil {
				extended++
			} else if !strings.Contains(err.Error(), string(c.reason)) && lease.Context().Err() == nil {
				t.Fatal(err)
			}
			if until := lease.ValidUntil().Sub(start); until > 20*time.Second {
				t.Fatalf("trusted for %v", until)
			}
			time.Sleep(500 * time.Millisecond)
		}
		wantBetween(t, "extensions", time.Duration(extended), 30, 34)
	})
}

// What counts is a quorum, while the lease is still trusted.
func TestExtensionNotConfirmed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		p := w.extending(WithObserver(o.observer()))
		lease := w.acquire(p, "k")
		synctest.Wait()
		until := lease.ValidUntil()
		p.reaches(0)
		err := lease.Extend(t.Context(), 30*time.Second)
		wantErr(t, err, ErrUnavailable)
		if op, ok := errors.AsType[*OpError](err); !ok || op.Op != OpRenew || op.Key != "k" || len(op.Nodes) != 3 || op.Nodes[0].Verdict != VerdictGranted {
			t.Errorf("error is %#v", err)
		}
		p.mend()
		p.links[1].set(fate{lose: true}, renewScript)
		p.links[2].set(fate{loseReply: true}, renewScript)
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // only lends its values
		began := time.Now()
		wantErr(t, lease.Extend(ctx, 30*time.Second), ErrUnavailable)
		wantBetween(t, "given up after", time.Since(began), p.p.nodeTimeout, p.p.nodeTimeout)
		wantValid(t, lease)
		if !lease.ValidUntil().Equal(until) {
			t.Errorf("trusted %v longer than before", lease.ValidUntil().Sub(until))
		}
		if _, outs := o.of(t, OpRenew); len(outs) != 2 {
			t.Errorf("%d operations observed", len(outs))
		} else {
			wantErr(t, outs[1].Err, ErrUnavailable)
		}
		p.mend()
		if err := lease.Extend(ctx, 30*time.Second); err != nil { // an extension that failed does not keep the next from success
			t.Fatal(err)
		}
	})
}

func TestExtensionConfirmedAfterTheLease(t *testing.T) {
	for name, paused := range map[string]bool{"in time to say so": false, "paused": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				p := w.extending(WithClockWindow(0), withNodeTimeout(5*time.Second))
				lease := w.acquire(p, "k")
				synctest.Wait()
				p.set(fate{replyDelay: 2 * time.Second}, renewScript)
				time.Sleep(lease.left() - time.Second)
				if paused {
					p.stopTimers()
				}
				began := time.Now()
				wantReason(t, lease.Extend(t.Context(), 30*time.Second), LossExpired)
				if took := time.Since(began); !paused && took != time.Second {
					t.Errorf("said so only after %v", took)
				}
				time.Sleep(5 * time.Second)
				if lease.Context().Err() == nil {
					t.Error("revived")
				}
			})
		})
	}
}

// A quorum that has lost the lease ends it.
func TestExtensionFindsALoss(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		o := &recording{}
		p, other := w.extending(WithObserver(o.observer())), w.process(WithMaxTTL(time.Minute))
		lease := w.acquire(p, "k")
		synctest.Wait()
		for i := range 2 {
			w.forget(p, i, "k")
		}
		w.acquire(other, "k")
		wantReason(t, lease.Extend(t.Context(), 30*time.Second), LossTaken)
		wantReason(t, lease.Lost(), LossTaken)
		if _, outs := o.of(t, OpRenew); len(outs) != 1 || outs[0].Reason != LossTaken {
			t.Errorf("observed %+v", outs)
		}
		wantReason(t, lease.Extend(t.Context(), 30*time.Second), LossTaken)
	})
}

// A lease that is over is not extended.
func TestExtendAfterTheEnd(t *testing.T) {
	bubbles(t, 3, leaseEnds, func(t *testing.T, w *world, c leaseEnd) {
		p := w.extending()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lease := w.awaitUnder(ctx, p, "k")
		synctest.Wait()
		c.ends(w, p, lease, cancel)
		c.wantRefused(t, extension(lease))
	})
}

// An extension of a lease that ends meanwhile fails at once.
func TestExtendWhileItEnds(t *testing.T) {
	bubbles(t, 3, leaseEnds, func(t *testing.T, w *world, c leaseEnd) {
		p := w.extending()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lease := w.awaitUnder(ctx, p, "k")
		synctest.Wait()
		if c.runsOut {
			time.Sleep(lease.left() - p.p.nodeTimeout/2)
		}
		p.set(fate{replyDelay: 10 * time.Second}, renewScript)
		extended := extension(lease)
		synctest.Wait()
		c.ends(w, p, lease, cancel)
		c.wantRefused(t, extended)
	})
}

// A leaseEnd is how a lease ends, and the error of what is asked of it afterwards.
type leaseEnd struct {
	ends    func(w *world, p *process, lease *Lease, cancel context.CancelFunc)
	want    error
	runsOut bool
}

var leaseEnds = map[string]leaseEnd{
	"released": {ends: func(w *world, _ *process, lease *Lease, _ context.CancelFunc) { w.release(lease) }, want: ErrReleased},
	"completed": {ends: func(_ *world, _ *process, lease *Lease, _ context.CancelFunc) {
		lease.Complete(context.Background(), nil)
	}, want: ErrReleased},
	"taken away": {ends: func(_ *world, p *process, _ *Lease, _ context.CancelFunc) { p.Close(over()) }, want: ErrLost},
	"run out": {ends: func(_ *world, _ *process, lease *Lease, _ context.CancelFunc) { time.Sleep(lease.left()) }, want: ErrLost,
		runsOut: true},
	"its caller ended": {ends: func(_ *world, _ *process, _ *Lease, cancel context.CancelFunc) { cancel() }, want: context.Canceled},
}

// extension begins to extend a lease, and returns where the error will be.
func extension(lease *Lease) <-chan error {
	extended := make(chan error, 1)
	go func() { extended <- lease.Extend(context.Background(), 30*time.Second) }()
	return extended
}

// wantRefused checks that an extension has failed by now, with the error for that end and no other.
func (c leaseEnd) wantRefused(t *testing.T, extended <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-extended:
		wantErr(t, err, c.want)
		if _, ok := errors.AsType[*OpError](err); !ok {
			t.Errorf("untyped: %v", err)
		}
		for _, other := range []error{ErrReleased, ErrLost, ErrUnavailable, context.Canceled} {
			if other != c.want && errors.Is(err, other) {
				t.Errorf("matches %v, too", other)
			}
		}
	default:
		t.Fatal("has not returned at once")
	}
}

// Of several at a time, that counts which lasts for longest.
func TestExtendAtTheSameTime(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.extending(), w.process(patient, WithMaxTTL(time.Minute))
		lease := w.acquire(p, "k")
		start := time.Now()
		var wg sync.WaitGroup
		for d := 5 * time.Second; d <= 50*time.Second; d += 5 * time.Second {
			wg.Go(func() {
				if err := lease.Extend(t.Context(), d); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got, want := lease.left(), p.trustOf(t, 50*time.Second); got != want {
			t.Errorf("trusted for %v, want %v", got, want)
		}
		w.freeAfter(other, "k")
		wantBetween(t, "free after", time.Since(start), 50*time.Second, 50*time.Second+soon)
		wantReason(t, lease.Release(t.Context()), LossExpired)
	})
}

// A release that is not confirmed tells for how long the nodes may keep what they were asked to.
func TestReleaseAfterAnExtension(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.extending(), w.process(WithMaxTTL(time.Minute))
		for _, confirmed := range []bool{true, false} {
			lease := w.acquire(p, "k")
			if err := lease.Extend(t.Context(), 50*time.Second); err != nil {
				t.Fatal(err)
			}
			if confirmed {
				w.release(lease)
				w.release(w.acquire(other, "k"))
				continue
			}
			synctest.Wait() // nothing is on its way that a request might wait for
			p.set(fate{refuse: true}, releaseScript)
			err := lease.Release(t.Context())
			wantErr(t, err, ErrUnavailable)
			if op, _ := errors.AsType[*OpError](err); op.RetryAfter != 50*time.Second-refusing {
				t.Errorf("retry after %v", op.RetryAfter)
			}
		}
	})
}
