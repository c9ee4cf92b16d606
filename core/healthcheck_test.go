package core

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/internal/logbook"
	"github.com/lockkit/lockkit/testutil"
)

var errStuck = errors.New("no progress")

// A holder that is well keeps its lease; one that no longer is gives it up, and learns why.
func TestRenewWhile(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var log logbook.Book
		p, other := w.process(WithLogger(log.Logger())), w.process(patient)
		var well atomic.Bool
		var checks atomic.Int64
		well.Store(true)
		var lastWell time.Time
		lease := w.await(p, "k", RenewWhile(func(ctx context.Context) error {
			checks.Add(1)
			if in, ok := FromContext(ctx); !ok || in.Key() != "k" {
				t.Error("the check does not know of the lease")
			}
			if !well.Load() {
				return errStuck
			}
			lastWell = time.Now()
			return nil
		}))
		time.Sleep(time.Minute)
		wantValid(t, lease)
		if n := checks.Load(); n < 15 || n > 21 {
			t.Errorf("%d checks in a minute", n)
		}
		well.Store(false)
		w.pass(p.p.renewEvery * 11 / 10) // the renewal that the check before it allowed
		renewals, asked := p.counting(renewScript), checks.Load()
		testutil.Receive(t, lease.Context().Done())
		for _, err := range []error{context.Cause(lease.Context()), lease.Lost(), lease.Release(t.Context())} {
			wantReason(t, err, LossUnhealthy)
			wantErr(t, err, errStuck)
			if !strings.Contains(err.Error(), "lease lost (unhealthy): no progress") {
				t.Errorf("error is %v", err)
			}
		}
		w.freeAfter(other, "k")
		wantBetween(t, "free after", time.Since(lastWell), 10*time.Second, 14*time.Second+soon)
		if n, m := renewals.Load(), checks.Load()-asked; n > 0 || m > 0 {
			t.Errorf("%d renewals and %d checks after one that failed", n, m)
		}
		synctest.Wait() // it is logged apart
		log.Want(t, 1, "reason=unhealthy", `check="no progress"`)
	})
}

// The first renewal depends on a check as all others do, also where everything happens at once.
func TestRenewWhileFromTheBeginning(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		renewals := p.counting(renewScript)
		start := time.Now()
		lease := w.await(p, "k", RenewWhile(func(context.Context) error { return errStuck }))
		wantValid(t, lease)
		testutil.Receive(t, lease.Context().Done())
		wantReason(t, lease.Lost(), LossUnhealthy)
		wantBetween(t, "lost after", time.Since(start), p.p.validity-p.p.margin, p.p.validity-p.p.margin)
		if n := renewals.Load(); n > 0 {
			t.Errorf("%d renewals", n)
		}
	})
}

// A check that hangs has failed when the next renewal is due, and delays no renewal of any other lease. What it answers
// then counts for nothing.
func TestRenewWhileHangs(t *testing.T) {
	bubbles(t, 3, map[string]bool{"heeding its context": true, "heeding nothing": false}, func(t *testing.T, w *world, heeds bool) {
		p := w.process()
		other := w.acquire(p, "other")
		quick := w.await(p, "quick", RenewWhile(func(context.Context) error { return nil }))
		start := time.Now()
		var ended time.Duration
		hang := func(ctx context.Context) error {
			if heeds {
				testutil.Receive(t, ctx.Done())
				ended = time.Since(start)
				return ctx.Err()
			}
			time.Sleep(20 * time.Second)
			return nil
		}
		lease := w.await(p, "k", RenewWhile(hang))
		testutil.Receive(t, lease.Context().Done())
		wantBetween(t, "lost after", time.Since(start), p.p.validity-p.p.margin, p.p.validity-p.p.margin)
		wantReason(t, lease.Lost(), LossUnhealthy)
		wantErr(t, lease.Lost(), errCheckSlow)
		if heeds {
			wantBetween(t, "the check's context ended after", ended, p.p.renewEvery*9/10, p.p.renewEvery*11/10)
		}
		time.Sleep(time.Minute)
		for _, lease := range []*Lease{other, quick} {
			wantRenewedInTime(t, lease)
		}
	})
}

// wantRenewedInTime checks that no renewal of a lease has been put off.
func wantRenewedInTime(t *testing.T, lease *Lease) {
	t.Helper()
	wantValid(t, lease)
	if left := lease.left(); left < lease.p.validity-lease.p.margin-lease.p.renewEvery*11/10 {
		t.Fatalf("%s has %v left: its renewal is late", lease.Key(), left)
	}
}

// A check that takes its time delays no renewal.
func TestRenewWhileTakesItsTime(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(TTL(3 * time.Second))
		lease := w.await(p, "k", RenewWhile(func(context.Context) error {
			time.Sleep(p.p.renewEvery * 8 / 10)
			return nil
		}))
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			wantRenewedInTime(t, lease)
		}
	})
}

// A round that fails is repeated under the check that allowed it, and the next one needs a check of its own.
func TestRenewWhileNodesFail(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		var checks atomic.Int64
		lease := w.await(p, "k", RenewWhile(func(context.Context) error {
			checks.Add(1)
			return nil
		}))
		for _, k := range p.links {
			k.sequence(renewScript, fate{refuse: true}, fate{refuse: true}, fate{})
		}
		time.Sleep(6 * time.Second) // renewed by the third round
		if n := checks.Load(); n != 2 {
			t.Errorf("%d checks", n)
		}
		time.Sleep(time.Minute)
		wantValid(t, lease)
		p.refused()
		testutil.Receive(t, lease.Context().Done())
		wantReason(t, lease.Lost(), LossExpired) // it was well to the end
	})
}

// Of a thousand leases, some are looked at ahead of time: a check has its time all the same.
func TestRenewWhileLookedAtAhead(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		answer := make(chan error, 1)
		lease := w.await(p, "k", RenewWhile(func(context.Context) error { return <-answer }))
		p.stopTimers()
		time.Sleep(time.Second)
		if lease.inspect(p.e.clock.now(), lease.renewAt) != nil {
			t.Error("renewed without an answer")
		}
		answer <- nil
		synctest.Wait()
		if lease.inspect(p.e.clock.now(), lease.renewAt) == nil {
			t.Error("not renewed")
		}
		close(answer)
	})
}

// When a lease ends, so does the context of its check, and Close waits for the check. What comes of it is of no account.
func TestRenewWhileEndsWithTheLease(t *testing.T) {
	type end struct {
		ends   func(w *world, lease *Lease, cancel context.CancelFunc)
		reason LossReason
	}
	bubbles(t, 3, map[string]end{
		"released":     {func(w *world, lease *Lease, _ context.CancelFunc) { w.release(lease) }, ""},
		"caller ended": {func(_ *world, _ *Lease, cancel context.CancelFunc) { cancel() }, LossExpired},
	}, func(t *testing.T, w *world, c end) {
		p := w.process()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		heard, over := make(chan error, 1), false
		lease := w.awaitUnder(ctx, p, "k", RenewWhile(func(ctx context.Context) error {
			testutil.Receive(t, ctx.Done())
			heard <- context.Cause(ctx)
			time.Sleep(time.Second)
			over = true
			return ctx.Err()
		}))
		c.ends(w, lease, cancel)
		synctest.Wait()
		select {
		case err := <-heard:
			if want := context.Cause(lease.Context()); err != want {
				t.Errorf("the check's context ended with %v, the lease's with %v", err, want)
			}
		default:
			t.Fatal("the check's context has not ended")
		}
		if c.reason != "" {
			time.Sleep(10 * time.Second)
			wantReason(t, lease.Release(t.Context()), c.reason)
		}
		if err := p.Close(t.Context()); err != nil || !over {
			t.Errorf("closed with %v; the check is over: %v", err, over)
		}
	})
}

// A check that heeds nothing keeps Close for as long as its context allows.
func TestCloseWithACheckThatHangs(t *testing.T) {
	for name, owned := range map[string]bool{"New": false, "Open": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				p := w.process()
				p.e.owned = owned
				stop := make(chan struct{})
				defer close(stop)
				lease, err := p.Acquire(t.Context(), "k", RenewWhile(func(context.Context) error { <-stop; return nil }))
				if err != nil {
					t.Fatal(err)
				}
				w.release(lease)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				began := time.Now()
				wantErr(t, p.Close(ctx), errUnderWay)
				wantBetween(t, "closed after", time.Since(began), 5*time.Second, 7*time.Second)
			})
		})
	}
}

// Errors that read like the end of a context do not make a loss look like that of the caller's.
func TestCheckFailsLikeAContext(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		err := p.Do(t.Context(), "k", func(ctx context.Context) error {
			testutil.Receive(t, ctx.Done())
			return nil
		}, RenewWhile(func(context.Context) error { return context.DeadlineExceeded }))
		wantReason(t, err, LossUnhealthy)
		if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "deadline exceeded") {
			t.Errorf("error is %v", err)
		}
	})
}

// With several ends in sight, the reason is that of the first.
func TestRenewWhileAndMaxHold(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		var fails time.Time
		check := RenewWhile(func(context.Context) error {
			if time.Now().After(fails) {
				return errStuck
			}
			return nil
		})
		for d, want := range map[time.Duration]LossReason{10 * time.Second: LossMaxHold, time.Hour: LossUnhealthy} {
			fails = time.Now().Add(30 * time.Second)
			lease, err := p.Acquire(t.Context(), "k", check, MaxHold(d))
			if err != nil {
				t.Fatal(err)
			}
			testutil.Receive(t, lease.Context().Done())
			wantReason(t, lease.Release(t.Context()), want)
		}
	})
}

func TestRenewWhileIsAnOption(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		checks := 0
		p := w.process(RenewWhile(func(context.Context) error { checks++; return nil }))
		_, err := p.TryAcquire(t.Context(), "k", fixed)
		if err == nil || !strings.Contains(err.Error(), "RenewWhile(nil)") {
			t.Errorf("a fixed lease with a check: %v", err)
		}
		for _, opts := range [][]CallOption{{RenewWhile(nil)}, {RenewWhile(nil), fixed}, nil} {
			lease, err := p.TryAcquire(t.Context(), "k", opts...)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if (checks > 0) != (opts == nil) {
				t.Errorf("%d checks with %d options", checks, len(opts))
			}
			w.release(lease)
		}
	})
}
