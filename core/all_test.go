package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests sets of keys: DoAll, TryDoAll, AcquireAll and TryAcquireAll.

var threeKeys = []string{"a", "b", "c"}

// acquireAll acquires keys without waiting.
func (w *world) acquireAll(p *process, keys ...string) *Leases {
	w.t.Helper()
	set, err := p.TryAcquireAll(w.t.Context(), keys)
	if err != nil {
		w.t.Fatalf("acquire all: %v", err)
	}
	return set
}

// of returns the lease of a set on one of its keys.
func (s *Leases) of(t *testing.T, key string) *Lease {
	t.Helper()
	for _, lease := range s.leases {
		if lease.Key() == key {
			return lease
		}
	}
	t.Fatalf("the set has no lease on %q", key)
	return nil
}

// countingSlowly makes each request of p take this long, and returns a function that returns how many were sent.
func (p *process) countingSlowly(each time.Duration) func() map[wire.Op]int {
	var mu sync.Mutex
	sent := map[wire.Op]int{}
	for _, k := range p.links {
		k.Decide(func(op wire.Op, _ coretest.Sent) coretest.Fate {
			mu.Lock()
			defer mu.Unlock()
			sent[op]++
			return coretest.Fate{ReplyDelay: each}
		})
	}
	return func() map[wire.Op]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(sent)
	}
}

// wantHeldKeys checks which of the keys a to e are held, as another process sees it.
func (w *world) wantHeldKeys(p *process, want string) {
	w.t.Helper()
	got := ""
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		if must(p.Inspect(w.t.Context(), key)).Holder != nil {
			got += key
		}
	}
	if got != want {
		w.t.Fatalf("%q are held, want %q", got, want)
	}
}

// All four calls hold all keys, in whatever order they are given, and free them all.
func TestAllKeysAreHeld(t *testing.T) {
	under := func(do func(*Locker, context.Context, []string, func(context.Context) error, ...CallOption) error) func(*process, func(context.Context)) error {
		return func(p *process, fn func(context.Context)) error {
			return do(p.Locker, context.Background(), []string{"c", "a", "b", "a"}, func(ctx context.Context) error { fn(ctx); return nil })
		}
	}
	acquired := func(acquire func(*Locker, context.Context, []string, ...CallOption) (*Leases, error)) func(*process, func(context.Context)) error {
		return func(p *process, fn func(context.Context)) error {
			set, err := acquire(p.Locker, context.Background(), []string{"c", "a", "b", "a"})
			if err != nil {
				return err
			}
			if !slices.Equal(set.Keys(), threeKeys) {
				return fmt.Errorf("the keys are %q", set.Keys())
			}
			fn(set.Context())
			return set.Release(context.Background())
		}
	}
	for _, nodes := range []int{1, 3} {
		for name, run := range map[string]func(*process, func(context.Context)) error{
			"DoAll": under((*Locker).DoAll), "TryDoAll": under((*Locker).TryDoAll),
			"AcquireAll": acquired((*Locker).AcquireAll), "TryAcquireAll": acquired((*Locker).TryAcquireAll),
		} {
			bubbleNamed(t, fmt.Sprintf("%s on %d", name, nodes), nodes, func(t *testing.T, w *world) {
				p, other := w.process(), w.process()
				var held context.Context
				err := run(p, func(ctx context.Context) {
					held = ctx
					for _, key := range threeKeys {
						lease, isHeld := p.Holding(ctx, key)
						if !isHeld || lease.Key() != key || lease.FencingToken() == 0 {
							t.Errorf("no lease on %q", key)
						}
						_, err := other.TryAcquire(t.Context(), key)
						wantErr(t, err, ErrHeld)
					}
					if last, _ := FromContext(ctx); last.Key() != "c" {
						t.Errorf("FromContext returns the lease on %q", last.Key())
					}
				})
				succeeds(t, err)
				wantErr(t, context.Cause(held), ErrReleased)
				w.pass(time.Second)
				for _, key := range threeKeys {
					w.wantFree(p, key)
				}
				p.wantNothingLeft(t)
			})
		}
	}
}

// Whatever their number, free keys cost one round trip to acquire and one to release, and two requests for each.
func TestAllKeysTakeTwoRoundTrips(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(untouched)
		var keys []string
		for i := range 10 {
			keys = append(keys, fmt.Sprint("key-", i))
		}
		succeeds(t, w.acquireAll(p, keys...).Release(t.Context())) // dials
		w.pass(time.Second)

		asked, began := p.countingSlowly(10*time.Millisecond), time.Now()
		succeeds(t, p.DoAll(t.Context(), keys, func(context.Context) error { return nil }))
		wantBetween(t, "ten keys took", time.Since(began), 20*time.Millisecond, 22*time.Millisecond)
		w.pass(time.Second)
		if n := asked(); n[wire.OpAcquire] != 30 || n[wire.OpRelease] != 30 || len(n) != 2 {
			t.Errorf("ten keys on three nodes took %v", n)
		}
	})
}

// If one of the keys is held, TryAcquireAll holds none. The error names the key.
func TestAllOrNone(t *testing.T) {
	for _, taken := range threeKeys {
		for _, local := range []bool{true, false} {
			bubbleNamed(t, fmt.Sprintf("%s, by this process: %v", taken, local), 3, func(t *testing.T, w *world) {
				p, other := w.process(), w.process()
				holder := other
				if local {
					holder = p
				}
				lease := w.acquire(holder, taken)

				_, err := p.TryAcquireAll(t.Context(), threeKeys)
				wantErr(t, err, ErrHeld)
				if op, _ := errors.AsType[*OpError](err); op.Key != taken || op.Held != HeldByOther {
					t.Errorf("the error is %+v", op)
				}
				w.wantHeldKeys(other, taken)
				err = p.TryDoAll(t.Context(), threeKeys, w.never)
				wantErr(t, err, ErrHeld)
				w.wantHeldKeys(other, taken)

				w.release(lease)
				w.pass(time.Second)
				p.wantNothingLeft(t)
			})
		}
	}
}

// AcquireAll holds only the keys that sort before the one that it waits for.
func TestOnlyThePrefixIsHeldDuringTheWait(t *testing.T) {
	for _, local := range []bool{true, false} {
		bubbleNamed(t, fmt.Sprintf("by this process: %v", local), 3, func(t *testing.T, w *world) {
			p, other := w.process(), w.process()
			holder := other
			if local {
				holder = p
			}
			c, e := w.acquire(holder, "c"), w.acquire(holder, "e")

			got := make(chan *Leases, 1)
			go func() { got <- must(p.AcquireAll(t.Context(), []string{"e", "d", "c", "b", "a"})) }()
			w.pass(time.Second)
			w.wantHeldKeys(other, "abce") // c and e by the holder
			w.release(w.acquire(other, "d"))

			w.release(c)
			w.pass(time.Second)
			w.wantHeldKeys(other, "abcde")
			w.release(e)
			set := testutil.Receive(t, got)
			for _, key := range set.Keys() {
				wantValid(t, set.of(t, key))
			}
			succeeds(t, set.Release(t.Context()))
			w.pass(time.Second)
			w.wantHeldKeys(other, "")
			p.wantNothingLeft(t)
		})
	}
}

// A key that is refused is waited for at once: the keys behind it are not asked for again before it is granted.
func TestRequestsOfAContendedSet(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(untouched), w.process(untouched)
		b := w.acquire(other, "b")
		var asked atomic.Int64
		p.links[0].Decide(func(op wire.Op, sent coretest.Sent) coretest.Fate {
			if op == wire.OpAcquire && sent.Resource == p.e.Keys.Resource("c") {
				asked.Add(1)
			}
			return coretest.Fate{}
		})

		go func() { must(p.AcquireAll(t.Context(), threeKeys)).Release(context.Background()) }()
		w.pass(5 * time.Second)
		if n := asked.Load(); n != 1 {
			t.Errorf("c was asked for %d times during the wait for b", n)
		}
		w.release(b)
		w.pass(time.Second)
		if n := asked.Load(); n != 2 {
			t.Errorf("c was asked for %d times in all", n)
		}
		p.wantNothingLeft(t)
	})
}

// Callers that name their keys in opposite orders do not wait for one another in a circle.
func TestOppositeOrders(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var mu sync.Mutex
		holders := map[string]int{}
		enter := func(by int, keys ...string) {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				holders[key] += by
				if holders[key] > 1 {
					t.Errorf("%d hold %q", holders[key], key)
				}
			}
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for i := range 6 {
			p := w.process()
			keys := [][]string{{"a", "b"}, {"b", "a"}, {"c", "b"}, {"b", "c"}, {"a", "c"}, {"c", "a"}}[i]
			p.set(coretest.Fate{Delay: time.Millisecond})
			all.Go(func() {
				for range 10 {
					err := p.DoAll(ctx, keys, func(context.Context) error {
						enter(1, keys...)
						time.Sleep(5 * time.Millisecond)
						enter(-1, keys...)
						return nil
					})
					if err != nil {
						t.Errorf("%q: %v", keys, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// Callers that hold another key while they wait can wait for each other. MaxWait ends that.
func TestCircleEndsWithMaxWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var all sync.WaitGroup
		began := time.Now()
		errs := make([]error, 2)
		for i, keys := range [][]string{{"a", "b"}, {"b", "a"}} {
			p := w.process()
			all.Go(func() {
				errs[i] = p.Do(t.Context(), keys[0], func(ctx context.Context) error {
					time.Sleep(time.Second)
					return p.DoAll(ctx, keys[1:], func(context.Context) error { return nil }, MaxWait(time.Duration(i+1)*time.Minute))
				})
			})
		}
		all.Wait()
		wantErr(t, errs[0], ErrHeld)
		succeeds(t, errs[1])
		wantBetween(t, "they waited", time.Since(began), time.Minute, 62*time.Second)
	})
}

// The context of a set ends when any of its leases is lost, with the error of that lease. The others are not renewed
// any more, and are released all the same.
func TestSetEndsWithAnyLease(t *testing.T) {
	for _, key := range threeKeys {
		bubbleNamed(t, key, 3, func(t *testing.T, w *world) {
			p, other := w.process(), w.process()
			var loss error
			err := p.DoAll(t.Context(), []string{"c", "b", "a"}, func(ctx context.Context) error {
				derived, cancel := context.WithCancel(ctx)
				defer cancel()
				for i := range w.nodes {
					w.forget(p, i, key)
				}
				defer w.release(w.acquire(other, key))

				testutil.Receive(t, derived.Done())
				loss = context.Cause(ctx)
				wantReason(t, loss, LossTaken)
				if op, _ := errors.AsType[*OpError](loss); op.Key != key {
					t.Errorf("%q is lost, want %q", op.Key, key)
				}
				if ctx.Err() == nil || context.Cause(derived) != loss {
					t.Error("a context of the set is live")
				}
				for _, k := range threeKeys {
					if _, held := p.Holding(ctx, k); held {
						t.Errorf("still holds %q", k)
					}
				}
				return nil
			})
			wantErr(t, err, ErrLost)
			w.pass(time.Second)
			w.wantHeldKeys(other, "")
			p.wantNothingLeft(t)
		})
	}
}

// Leases reports the loss of a lease, and releases the others.
func TestLeasesReportALoss(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		set := w.acquireAll(p, threeKeys...)
		succeeds(t, set.Lost())
		set.of(t, "b").declareLost(LossTaken)

		wantReason(t, set.Lost(), LossTaken)
		for _, key := range threeKeys {
			wantReason(t, set.of(t, key).Lost(), LossTaken)
		}
		err := set.Release(t.Context())
		wantReason(t, err, LossTaken)
		if n := len(err.(interface{ Unwrap() []error }).Unwrap()); n != 1 {
			t.Errorf("%d errors: %v", n, err)
		}
		w.pass(time.Second)
		w.wantHeldKeys(other, "")
	})
}

// To release a single lease ends the context of the whole set.
func TestOneOfASetIsReleased(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		set := w.acquireAll(p, threeKeys...)
		lease, _ := p.Holding(set.Context(), "b")
		w.release(lease)
		wantErr(t, context.Cause(set.Context()), ErrReleased)
		succeeds(t, set.Lost())
		succeeds(t, set.Release(t.Context()))
		succeeds(t, set.Release(t.Context()))
		w.pass(time.Second)
		w.wantHeldKeys(other, "")
	})
}

// If a lease is lost while the call waits for a later key, the call begins again.
func TestLossDuringTheWait(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		b := w.acquire(other, "b")
		got := make(chan *Leases, 1)
		go func() { got <- must(p.AcquireAll(t.Context(), []string{"a", "b"}, MaxHold(time.Second))) }()
		w.pass(time.Second)
		w.wantHeldKeys(other, "ab")

		for i := range w.nodes {
			w.forget(p, i, "a")
		}
		a := w.acquire(other, "a")
		time.Sleep(10 * time.Second) // until the lease on a is found to be lost
		w.release(b)
		w.pass(time.Second)
		if len(got) > 0 {
			t.Fatal("granted although another process has a")
		}
		w.release(a)
		set := testutil.Receive(t, got)
		wantValid(t, set.of(t, "a"))
		wantLaterToken(t, set.of(t, "a"), a)
		succeeds(t, set.Context().Err())
		succeeds(t, set.Release(t.Context()))
	})
}

// If the context ends during the wait, or the wait takes longer than MaxWait, nothing is left behind. MaxWait limits
// the wait for all keys together.
func TestWaitForASetEnds(t *testing.T) {
	type end struct {
		wait func(p *process, ctx context.Context) error
		want []error
		at   time.Duration
	}
	await := func(p *process, ctx context.Context, opts ...CallOption) error {
		_, err := p.AcquireAll(ctx, threeKeys, opts...)
		return err
	}
	bubbles(t, 3, map[string]end{
		"cancelled": {func(p *process, ctx context.Context) error {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(3*time.Second, func() { cancel(errors.New("enough")) })
			err := await(p, ctx)
			if !strings.Contains(fmt.Sprint(err), "enough") {
				t.Errorf("the cause is missing: %v", err)
			}
			return err
		}, []error{context.Canceled}, 3 * time.Second},
		"deadline": {func(p *process, ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			return await(p, ctx)
		}, []error{ErrHeld, context.DeadlineExceeded}, 3 * time.Second},
		"MaxWait": {func(p *process, ctx context.Context) error {
			return await(p, ctx, MaxWait(3*time.Second))
		}, []error{ErrHeld}, 3 * time.Second},
		"MaxWait, detached": {func(p *process, ctx context.Context) error {
			return await(p, ctx, MaxWait(3*time.Second), Detached(true))
		}, []error{ErrHeld}, 3 * time.Second},
		"closed": {func(p *process, ctx context.Context) error {
			time.AfterFunc(2*time.Second, func() { p.Close(ctx) })
			return await(p, ctx)
		}, []error{ErrClosed}, 2 * time.Second},
		"closed at once": {func(p *process, ctx context.Context) error {
			time.AfterFunc(2*time.Second, func() { p.Close(over()) })
			return await(p, ctx)
		}, []error{ErrClosed}, 2 * time.Second},
		"done": {func(p *process, ctx context.Context) error { return await(p, ctx) }, []error{ErrDone}, 5 * time.Second},
	}, func(t *testing.T, w *world, c end) {
		p, other := w.process(), w.process()
		b, last := w.acquire(other, "b"), w.acquire(other, "c")
		time.AfterFunc(time.Second, func() { w.release(b) }) // the rest of the wait is for c
		time.AfterFunc(5*time.Second, func() { last.Complete(context.Background(), []byte("result")) })

		began := time.Now()
		err := c.wait(p, t.Context())
		for _, want := range c.want {
			wantErr(t, err, want)
		}
		wantBetween(t, "the wait took", time.Since(began), c.at, c.at+100*time.Millisecond)
		w.pass(6 * time.Second)
		w.wantHeldKeys(other, "")
		p.wantNothingLeft(t)
		if slices.Contains(c.want, ErrDone) {
			op, _ := errors.AsType[*OpError](err)
			if op.Key != "c" || string(op.Record.Result) != "result" {
				t.Errorf("the error is %+v", op)
			}
		}
	})
}

// A context that has ended, and a Locker that is closed, ask for nothing.
func TestSetIsRefusedAtOnce(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(untouched)
		before := w.requests()
		_, err := p.AcquireAll(over(), threeKeys)
		wantErr(t, err, context.Canceled)
		p.Close(t.Context())
		_, err = p.AcquireAll(t.Context(), threeKeys)
		wantErr(t, err, ErrClosed)
		if n := w.requests() - before; n > 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// Close waits for the leases of a set, and ends them when its context ends.
func TestCloseUnderASet(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		set := w.acquireAll(p, threeKeys...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := p.Close(ctx)
		for _, key := range threeKeys {
			if !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
				t.Errorf("the error does not name %q: %v", key, err)
			}
		}
		wantReason(t, set.Lost(), LossClosed)
		w.pass(time.Second)
		w.wantHeldKeys(other, "")
	})
}

// MaxHold begins when the set is complete, and not with the first key. Extend moves the end of a single lease.
func TestMaxHoldOfASet(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		b := w.acquire(other, "b")
		time.AfterFunc(time.Minute, func() { w.release(b) })
		set := must(p.AcquireAll(t.Context(), threeKeys, MaxHold(20*time.Second)))
		granted := time.Now()

		time.Sleep(19 * time.Second)
		succeeds(t, set.Context().Err())
		for _, key := range threeKeys {
			succeeds(t, set.of(t, key).Extend(10*time.Second))
		}
		succeeds(t, set.of(t, "b").Extend(2*time.Second))
		testutil.Receive(t, set.Context().Done())
		wantReason(t, set.Lost(), LossMaxHold)
		if held := time.Since(granted); held != 21*time.Second {
			t.Errorf("held for %v", held)
		}
		set.Release(t.Context())

		set = w.acquireAll(p, threeKeys...)
		wantErr(t, set.of(t, "a").Extend(time.Second), ErrInvalid)
	})
}

// A cooldown applies to each of the keys.
func TestCooldownOfASet(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		set := w.acquireAll(p, threeKeys...)
		wantErr(t, set.Release(t.Context(), Cooldown(-1)), ErrInvalid)
		succeeds(t, set.Context().Err())
		succeeds(t, set.Release(t.Context(), Cooldown(time.Minute)))
		for _, key := range threeKeys {
			_, err := other.TryAcquire(t.Context(), key)
			if op, _ := errors.AsType[*OpError](err); op == nil || op.Held != HeldCooldown {
				t.Errorf("%q: %v", key, err)
			}
		}
		time.Sleep(time.Minute + time.Second)
		w.acquireAll(other, threeKeys...)
	})
}

// A detached set outlives the context of its acquisition, which limits the wait only.
func TestDetachedSet(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		set := must(p.AcquireAll(ctx, threeKeys, Detached(true)))
		cancel()
		time.Sleep(time.Minute)
		succeeds(t, set.Context().Err())
		if set.Context().Value(key{}) != "value" {
			t.Error("the context has lost its values")
		}
		succeeds(t, set.Release(t.Context()))

		ctx, cancel = context.WithCancel(t.Context())
		set = must(p.AcquireAll(ctx, threeKeys))
		cancel()
		wantErr(t, set.Context().Err(), context.Canceled)
		succeeds(t, set.Lost())
		succeeds(t, set.Release(t.Context()))
	})
}

// A lease of a set cannot be completed. The refusal changes nothing.
func TestSetIsNotCompleted(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		set := w.acquireAll(p, threeKeys...)
		err := set.of(t, "b").Complete(t.Context(), nil)
		wantErr(t, err, ErrInvalid)
		if !strings.Contains(err.Error(), "Once") {
			t.Errorf("the error does not say what to do: %v", err)
		}
		time.Sleep(time.Minute)
		succeeds(t, set.Context().Err())
		succeeds(t, set.Release(t.Context()))
		w.acquireAll(p, threeKeys...)
	})
}

// A caller that holds one of the keys is refused at once, and nothing is asked.
func TestSetOfACallerThatHoldsAKey(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(untouched)
		lease := w.acquire(p, "b")
		synctest.Wait()
		before := w.requests()
		_, err := p.AcquireAll(lease.Context(), threeKeys, Reentrant(true))
		wantErr(t, err, ErrHeld)
		if op, _ := errors.AsType[*OpError](err); op.Key != "b" || op.Held != HeldByCaller {
			t.Errorf("the error is %+v", op)
		}
		wantErr(t, p.DoAll(lease.Context(), threeKeys, w.never), ErrHeld)
		if n := w.requests() - before; n > 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// With Reentrant, DoAll acquires the keys that the caller lacks, and runs under the leases on the others, which it does
// not release.
func TestReentrantSet(t *testing.T) {
	for name, keys := range map[string][]string{"some": {"a", "b", "c", "d"}, "all": {"b", "c"}} {
		bubbleNamed(t, name, 3, func(t *testing.T, w *world) {
			p, other := w.process(), w.process()
			outer := w.acquireAll(p, "b", "c")
			ran := false
			err := p.DoAll(outer.Context(), keys, func(ctx context.Context) error {
				ran = true
				for _, key := range keys {
					lease, held := p.Holding(ctx, key)
					if !held {
						t.Errorf("%q is not held", key)
					}
					succeeds(t, p.Do(ctx, key, func(context.Context) error { return nil }, Reentrant(true)))
					wantValid(t, lease)
				}
				return nil
			}, Reentrant(true))
			succeeds(t, err)
			if !ran {
				t.Error("has not run")
			}
			w.pass(time.Second)
			w.wantHeldKeys(other, "bc")

			err = p.DoAll(context.WithoutCancel(outer.Context()), keys, func(ctx context.Context) error {
				outer.of(t, "b").declareLost(LossTaken)
				wantErr(t, ctx.Err(), context.Canceled)
				return nil
			}, Reentrant(true))
			wantReason(t, err, LossTaken)
		})
	}
}

// A panic of the function frees all keys, and reaches the caller.
func TestPanicUnderASet(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic is gone")
				}
			}()
			p.DoAll(t.Context(), threeKeys, func(context.Context) error { panic("boom") })
		}()
		w.pass(time.Second)
		w.wantHeldKeys(other, "")
		p.wantNothingLeft(t)
	})
}

// A panickingContext panics when the answers are looked at.
type panickingContext struct{ context.Context }

func (c panickingContext) Done() <-chan struct{} { panic("boom") }

// If the caller's context panics, nothing is left behind.
func TestPanicOfTheContextOfASet(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		func() {
			defer func() { recover() }()
			p.AcquireAll(panickingContext{t.Context()}, threeKeys)
			t.Error("no panic")
		}()
		w.pass(time.Minute)
		w.wantHeldKeys(other, "")
		p.wantNothingLeft(t)
		succeeds(t, p.Close(t.Context()))
	})
}

// A panickingOnce panics in the call number at of its methods.
type panickingOnce struct {
	context.Context
	calls atomic.Int64
	at    int64
}

func (c *panickingOnce) count() {
	if c.calls.Add(1) == c.at {
		panic("a method of the caller's context")
	}
}

func (c *panickingOnce) Done() <-chan struct{}       { c.count(); return c.Context.Done() }
func (c *panickingOnce) Err() error                  { c.count(); return c.Context.Err() }
func (c *panickingOnce) Value(key any) any           { c.count(); return c.Context.Value(key) }
func (c *panickingOnce) Deadline() (time.Time, bool) { c.count(); return c.Context.Deadline() }

// Wherever the caller's context panics while keys are acquired, no turn stays taken: a key without a turn would never be
// granted in this process again. The nodes free the keys within a TTL.
func TestPanicAnywhereInAnAcquisition(t *testing.T) {
	race.SkipSweep(t)
	acquires := map[string]func(p *process, ctx context.Context) error{
		"a lock": func(p *process, ctx context.Context) error {
			_, err := p.Acquire(ctx, "b")
			return err
		},
		"a lock, with MaxWait": func(p *process, ctx context.Context) error {
			_, err := p.Acquire(ctx, "b", MaxWait(time.Minute))
			return err
		},
		"a set, with MaxWait": func(p *process, ctx context.Context) error {
			_, err := p.AcquireAll(ctx, threeKeys, MaxWait(time.Minute))
			return err
		},
		"a set": func(p *process, ctx context.Context) error {
			_, err := p.AcquireAll(ctx, threeKeys)
			return err
		},
	}
	for name, acquire := range acquires {
		for _, by := range []string{"nobody", "another process", "this process"} {
			bubbleNamed(t, name+" held by "+by, 3, func(t *testing.T, w *world) {
				other := w.process()
				isPast := false
				for at := int64(1); !isPast && at < 200; at++ {
					p := w.process()
					holder := map[string]*process{"another process": other, "this process": p}[by]
					if holder != nil {
						b := w.acquire(holder, "b")
						time.AfterFunc(200*time.Millisecond, func() { w.release(b) })
					}

					parent, cancel := context.WithCancel(t.Context())
					ctx := &panickingOnce{Context: parent, at: at}
					func() {
						defer func() { _ = recover() }()
						succeeds(t, acquire(p, ctx))
						isPast = ctx.calls.Load() < at
					}()
					ctx.calls.Store(at) // the call is over
					if isPast {
						cancel() // ends the leases
					}
					w.pass(time.Minute)
					w.wantHeldKeys(other, "")
					cancel()
					p.wantNothingLeft(t)
					succeeds(t, p.Close(t.Context()))
					if t.Failed() {
						t.Fatalf("panic in call %d", at)
					}
				}
			})
		}
	}
}

// Bad input is an error that names it, and nothing is asked.
func TestInvalidSets(t *testing.T) {
	var many []string
	for i := range maxKeys + 1 {
		many = append(many, fmt.Sprint(i))
	}
	type invalid struct {
		keys []string
		opts []CallOption
		want string
	}
	bubbles(t, 1, map[string]invalid{
		"no key":       {nil, nil, "no keys"},
		"too many":     {many, nil, "65 keys"},
		"an empty key": {[]string{"a", ""}, nil, "key 1: a key must have 1 to 512 bytes, this one has 0"},
		"two bad keys": {[]string{"", "a", strings.Repeat("x", 513), ""}, nil, "this one has 513"},
		"a bad option": {threeKeys, []CallOption{MaxWait(-1)}, "max wait"},
	}, func(t *testing.T, w *world, c invalid) {
		p := w.process(untouched)
		before := w.requests()
		_, err := p.AcquireAll(t.Context(), c.keys, c.opts...)
		for _, err := range []error{err, p.DoAll(t.Context(), c.keys, w.never, c.opts...)} {
			wantErr(t, err, ErrInvalid)
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not say %q", err, c.want)
			}
		}
		wantErr(t, p.DoAll(t.Context(), threeKeys, nil), ErrInvalid)
		_, err = p.AcquireAll(nil, threeKeys) //nolint:staticcheck // it must be refused
		wantErr(t, err, ErrInvalid)
		_, err = new(Locker).TryAcquireAll(t.Context(), threeKeys)
		wantErr(t, err, ErrInvalid)
		if n := w.requests() - before; n > 0 {
			t.Errorf("%d requests", n)
		}
		succeeds(t, w.acquireAll(p, many[:maxKeys]...).Release(t.Context()))
	})
}

// Leases that AcquireAll has not made are of no use, and harm nobody.
func TestLeasesOfNobody(t *testing.T) {
	t.Parallel()
	for _, set := range []*Leases{nil, {}} {
		wantErr(t, set.Release(t.Context()), ErrInvalid)
		wantErr(t, context.Cause(set.Context()), ErrInvalid)
		succeeds(t, set.Lost())
		if set.Keys() != nil {
			t.Error("has keys")
		}
	}
}

// A key that a call had to wait for is not asked for by the next calls before they wait, for a second.
func TestContendedKeysAreLeftAlone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(untouched), w.process(untouched)
		a := w.acquire(other, "a")
		time.AfterFunc(100*time.Millisecond, func() { w.release(a) })
		succeeds(t, must(p.AcquireAll(t.Context(), threeKeys)).Release(t.Context()))

		asked := func() int {
			sent := p.countingSlowly(10 * time.Millisecond)
			go func() { must(p.AcquireAll(t.Context(), threeKeys)).Release(context.Background()) }()
			w.pass(time.Millisecond)
			n := sent()[wire.OpAcquire]
			w.pass(100 * time.Millisecond)
			return n
		}
		if n := asked(); n != 1 {
			t.Errorf("%d keys were asked for with one that was contended just before", n)
		}
		time.Sleep(contendedFor)
		if n := asked(); n != 3 {
			t.Errorf("%d keys were asked for at once, want 3", n)
		}
	})
}

// The memory of contended keys is bounded.
func TestContendedKeysAreBounded(t *testing.T) {
	t.Parallel()
	var c contendedKeys
	for i := range 10 * maxContended {
		c.add(fmt.Sprint(i), 1)
	}
	if len(c.until) != maxContended || !c.has("0", 1) {
		t.Errorf("%d keys are remembered", len(c.until))
	}
	later := 1 + 2*clock.Instant(contendedFor)
	c.add("late", later)
	if len(c.until) != 1 || !c.has("late", later) || c.has("0", later) {
		t.Errorf("%d keys are remembered after they were forgotten", len(c.until))
	}
}

// The observer sees one operation with a number of keys, and each has one end.
func TestObserverOfASet(t *testing.T) {
	type scene struct {
		do   func(w *world, p *process)
		want []ending
	}
	acquired := ending{OpAcquire, nil, ""}
	bubbles(t, 3, map[string]scene{
		"released": {func(w *world, p *process) {
			set := w.acquireAll(p, threeKeys...)
			succeeds(w.t, set.Release(w.t.Context()))
			succeeds(w.t, set.Release(w.t.Context())) // sends no request
		}, []ending{acquired, {OpHold, ErrReleased, ""}, {OpRelease, nil, ""}}},
		"waited": {func(w *world, p *process) {
			b := w.acquire(w.process(), "b")
			time.AfterFunc(time.Second, func() { w.release(b) })
			must(p.AcquireAll(w.t.Context(), threeKeys)).Release(w.t.Context())
		}, []ending{acquired, {OpHold, ErrReleased, ""}, {OpRelease, nil, ""}}},
		"refused": {func(w *world, p *process) {
			w.acquire(w.process(), "b")
			p.TryAcquireAll(w.t.Context(), threeKeys)
		}, []ending{{OpAcquire, ErrHeld, ""}}},
		"lost": {func(w *world, p *process) {
			set := w.acquireAll(p, threeKeys...)
			set.of(w.t, "b").declareLost(LossTaken)
			set.Release(w.t.Context())
		}, []ending{acquired, {OpHold, ErrLost, LossTaken}, {OpRelease, ErrLost, LossTaken}}},
		"abandoned": {func(w *world, p *process) {
			ctx, cancel := context.WithCancel(w.t.Context())
			p.AcquireAll(ctx, threeKeys)
			cancel()
			time.Sleep(time.Minute)
		}, []ending{acquired, {OpHold, ErrLost, LossExpired}}},
		"taken away": {func(w *world, p *process) { w.acquireAll(p, threeKeys...); p.Close(over()) },
			[]ending{acquired, {OpHold, ErrLost, LossClosed}}},
	}, func(t *testing.T, w *world, c scene) {
		var r recording
		p := w.process(WithObserver(r.observer()), Name("transfer"))
		c.do(w, p)
		synctest.Wait()
		for _, kind := range []OpKind{OpAcquire, OpHold, OpRelease} {
			ops, outs := r.of(t, kind)
			var want []ending
			for _, e := range c.want {
				if e.kind == kind {
					want = append(want, e)
				}
			}
			if len(outs) != len(want) {
				t.Fatalf("%d operations %v, want %d", len(outs), kind, len(want))
			}
			for i, out := range outs {
				if ops[i].Keys != 3 || ops[i].Key != "a" || ops[i].Name != "transfer" || ops[i].Token != 0 || out.Token != 0 {
					t.Errorf("the operation is %+v, with the outcome %+v", ops[i], out)
				}
				if !errors.Is(out.Err, want[i].err) || out.Reason != want[i].reason {
					t.Errorf("%v ended with %v (%q), want %+v", kind, out.Err, out.Reason, want[i])
				}
			}
		}
	})
}

// An observer that ends the goroutine does not keep the keys.
func TestObserverEndsTheGoroutineOfASet(t *testing.T) {
	for _, kind := range []OpKind{OpAcquire, OpHold, OpRelease} {
		bubbleNamed(t, kind.String(), 3, func(t *testing.T, w *world) {
			p := w.process(WithObserver(Observer{Start: func(ctx context.Context, op Op) (context.Context, func(Outcome)) {
				if op.Kind == kind {
					runtime.Goexit()
				}
				return ctx, nil
			}}))
			other := w.process()
			done := make(chan struct{})
			go func() {
				defer close(done)
				set, err := p.AcquireAll(context.Background(), threeKeys)
				if err == nil {
					set.Release(context.Background())
				}
			}()
			testutil.Receive(t, done)
			w.pass(time.Minute)
			w.wantHeldKeys(other, "")
			p.wantNothingLeft(t)
		})
	}
}
