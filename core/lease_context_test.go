package core

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// These tests check how long a key stays taken and how long its holder may act: the rules of a lease, of its context,
// and of the function that runs under it.

// patient makes a waiter notice a free key soon.
var patient = withRetryDelay(20*time.Millisecond, soon)

const soon = 100 * time.Millisecond

// freeAfter returns the time until another process is granted the key.
func (w *world) freeAfter(other *process, key string) time.Duration {
	w.t.Helper()
	start := time.Now()
	lease, err := other.Acquire(w.t.Context(), key)
	if err != nil {
		w.t.Fatalf("never free again: %v", err)
	}
	took := time.Since(start)
	w.release(lease)
	return took
}

// counting returns a counter of the requests of p with operation s.
func (p *process) counting(s wire.Op) *atomic.Int64 {
	n := new(atomic.Int64)
	for _, k := range p.links {
		k.Decide(func(got wire.Op, _ coretest.Sent) coretest.Fate {
			if got == s {
				n.Add(1)
			}
			return coretest.Fate{}
		})
	}
	return n
}

func wantBetween(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %v, want %v to %v", what, got, least, most)
	}
}

func wantReason(t *testing.T, err error, want LossReason) {
	t.Helper()
	wantErr(t, err, ErrLost)
	if op, ok := errors.AsType[*OpError](err); !ok || op.Reason != want {
		t.Errorf("reason of %v, want %q", err, want)
	}
}

func TestParentContextEnds(t *testing.T) {
	errBoom := errors.New("boom")
	ended := func(t *testing.T, p *process) *Lease {
		ctx, cancel := context.WithCancelCause(t.Context())
		lease, err := p.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		cancel(errBoom)
		if err := lease.Context().Err(); err != context.Canceled {
			t.Errorf("the lease's context says %v", err)
		}
		if cause := context.Cause(lease.Context()); cause != errBoom {
			t.Errorf("cause is %v", cause)
		}
		return lease
	}

	bubbleNamed(t, "abandoned", 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process(patient)
		lease := ended(t, p)
		renewals := p.counting(wire.OpRenew)
		wantBetween(t, "free after", w.freeAfter(other, "k"), 5*time.Second, 10*time.Second+soon)
		if n := renewals.Load(); n > 0 {
			t.Errorf("%d renewals that nobody wants", n)
		}
		if cause := context.Cause(lease.Context()); cause != errBoom {
			t.Errorf("the cause has become %v", cause)
		}
		wantReason(t, lease.Release(t.Context()), LossExpired)
	})

	bubbleNamed(t, "released", 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process(patient)
		w.release(ended(t, p))
		if d := w.freeAfter(other, "k"); d != 0 {
			t.Errorf("free only %v after the release", d)
		}
	})
}

func TestFromContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		type name struct{}
		type other struct{}
		p := w.process()
		if _, ok := FromContext(t.Context()); ok {
			t.Error("a lease out of nothing")
		}

		outer := must(p.Acquire(context.WithValue(t.Context(), name{}, "x"), "outer"))
		derived, cancel := context.WithTimeout(context.WithValue(outer.Context(), other{}, 1), time.Hour)
		defer cancel()
		if got, ok := FromContext(derived); !ok || got != outer {
			t.Errorf("lease is %v, want the outer", got)
		}

		inner := must(p.Acquire(derived, "inner"))
		if got, _ := FromContext(context.WithoutCancel(inner.Context())); got != inner {
			t.Errorf("lease is %v, want the innermost", got)
		}
		if got := inner.Context().Value(name{}); got != "x" {
			t.Errorf("value of the caller's context is %v", got)
		}

		w.release(outer)
		wantErr(t, context.Cause(inner.Context()), ErrReleased) // a lease under the outer lease ends with it
		w.release(inner)
	})
}

func TestPanicReleases(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		for name, run := range map[string]func(context.Context, string, func(context.Context) error, ...CallOption) error{
			"Do": p.Do, "TryDo": p.TryDo, "Once": p.Once,
		} {
			var got any
			func() {
				defer func() { got = recover() }()
				run(t.Context(), "k", func(context.Context) error { panic(name) })
			}()
			if got != name {
				t.Errorf("%s swallowed the panic: %v", name, got)
			}
			w.release(w.acquire(other, "k")) // neither held nor done
		}
	})
}

func TestErrorOfDo(t *testing.T) {
	errBoom := errors.New("boom")
	for name, run := range map[string]func(*Locker, context.Context, string, func(context.Context) error, ...CallOption) error{
		"Do": (*Locker).Do, "TryDo": (*Locker).TryDo, "Once": (*Locker).Once,
	} {
		bubbleNamed(t, name, 3, func(t *testing.T, w *world) {
			p := w.process()
			lost := func(fn func(context.Context) error) error {
				defer func() {
					p.mend()
					time.Sleep(20 * time.Second) // the key is free again, and the breaker closed
				}()
				return run(p.Locker, t.Context(), "k", func(ctx context.Context) error {
					p.cut()
					testutil.Receive(t, ctx.Done())
					return fn(ctx)
				})
			}
			if err := run(p.Locker, t.Context(), "k", func(context.Context) error { return errBoom }); err != errBoom {
				t.Errorf("fn's error became %v", err)
			}

			err := lost(func(context.Context) error { return errBoom })
			wantErr(t, err, ErrLost)
			wantErr(t, err, errBoom)
			err = lost(func(ctx context.Context) error { return ctx.Err() })
			wantReason(t, err, LossExpired)
			if errors.Is(err, context.Canceled) {
				t.Errorf("looks as if the caller had cancelled: %v", err)
			}

			if name != "Once" { // Once then completes the key even without the lease
				wantErr(t, lost(func(context.Context) error { return nil }), ErrLost)
			}

			ctx, cancel := context.WithCancel(t.Context())
			err = run(p.Locker, ctx, "k", func(ctx context.Context) error {
				cancel()
				return ctx.Err()
			})
			wantErr(t, err, context.Canceled)
			if errors.Is(err, ErrLost) {
				t.Errorf("the caller has cancelled, and was told of a loss: %v", err)
			}
			w.release(w.acquire(p, "k"))

			ctx, cancel = context.WithCancel(t.Context())
			err = run(p.Locker, ctx, "k", func(ctx context.Context) error {
				cancel()
				time.Sleep(time.Minute)
				return ctx.Err()
			})
			wantErr(t, err, context.Canceled) // both are true
			wantReason(t, err, LossExpired)
		})
	}
}

// Contexts that are derived from a lease's context end in the same instant. If the lease's context were not recognised
// as one of the standard library, each of them would cost a goroutine and end later.
func TestDerivedContextsEndWithTheLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for name, end := range map[string]func(*Lease){
			"released": func(lease *Lease) { w.release(lease) },
			"lost": func(lease *Lease) {
				p.cut()
				testutil.Receive(t, lease.Context().Done())
				synctest.Wait() // the goroutine that ends the context is about to end its children
			},
		} {
			lease := w.acquire(p, "k")
			timeout, cancel1 := context.WithTimeout(lease.Context(), time.Hour)
			child, cancel2 := context.WithCancel(timeout)
			called := false
			context.AfterFunc(lease.Context(), func() { called = true })

			end(lease)
			for _, ctx := range []context.Context{timeout, child} {
				if ctx.Err() != context.Canceled || context.Cause(ctx) != context.Cause(lease.Context()) {
					t.Errorf("%s: a derived context says %v, cause %v", name, ctx.Err(), context.Cause(ctx))
				}
			}

			if want := map[string]error{"released": ErrReleased, "lost": ErrLost}[name]; !errors.Is(context.Cause(child), want) {
				t.Errorf("cause is %v, want %v", context.Cause(child), want)
			}
			synctest.Wait()
			if !called {
				t.Errorf("%s: AfterFunc was not called", name)
			}

			cancel1()
			cancel2()
			p.mend()
			time.Sleep(20 * time.Second)
		}
	})
}

// With Detached, the caller's context limits the wait and not the lease. The lease keeps the values of the context.
func TestDetached(t *testing.T) {
	type key struct{}
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process(patient)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		lease := w.awaitUnder(ctx, p, "k", Detached(true))

		waiting, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		if _, err := other.Acquire(waiting, "k", Detached(true)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the wait ended with %v", err)
		}

		cancel()
		time.Sleep(time.Minute)
		wantValid(t, lease)
		if lease.Context().Value(key{}) != "value" {
			t.Error("the caller's values are gone")
		}

		w.release(lease)
		if d := w.freeAfter(other, "k"); d != 0 {
			t.Errorf("free only %v later", d)
		}
	})
}
