package core

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// MaxHold is exact, and the lease is renewed only as often as it has to be until then.
func TestMaxHold(t *testing.T) {
	type hold struct {
		d        time.Duration
		renewals int64
	}
	bubbles(t, 3, map[string]hold{
		"shorter than the TTL": {3 * time.Second, 0},
		"than what is trusted": {7 * time.Second, 0},
		"a renewal":            {10 * time.Second, 3},
		"for long":             {40 * time.Second, -1},
		"a moment":             {1, 0},
	}, func(t *testing.T, w *world, c hold) {
		p, other := w.process(MaxHold(c.d)), w.process(patient)
		renewals := p.counting(wire.OpRenew)
		start := time.Now()
		lease := w.acquire(p, "k")

		testutil.Receive(t, lease.Context().Done())
		if held := time.Since(start); held != c.d {
			t.Errorf("held for %v", held)
		}
		wantReason(t, context.Cause(lease.Context()), LossMaxHold)

		sent := renewals.Load()
		if c.renewals >= 0 && sent != c.renewals {
			t.Errorf("%d renewals", sent)
		}

		w.freeAfter(other, "k")
		wantBetween(t, "free after", time.Since(start), c.d, c.d+10*time.Second+soon)
		if n := renewals.Load(); n != sent {
			t.Errorf("%d renewals after the end", n-sent)
		}
		wantReason(t, lease.Release(t.Context()), LossMaxHold)
	})
}

// A max hold or a max wait that is too long for any clock counts as none.
func TestLongestDurations(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		lease := must(w.process().Acquire(t.Context(), "k", MaxHold(math.MaxInt64), MaxWait(math.MaxInt64)))
		time.Sleep(time.Minute)
		wantValid(t, lease)
		if err := lease.Extend(math.MaxInt64); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		wantValid(t, lease)
	})
}

// Extend moves the end, later or sooner. The renewals for it are made, whenever Extend is called.
func TestExtend(t *testing.T) {
	type move struct{ after, d time.Duration }
	bubbles(t, 3, map[string]move{
		"later":                       {2 * time.Second, 50 * time.Second},
		"after the last renewal":      {7500 * time.Millisecond, 50 * time.Second},
		"at the last moment":          {8*time.Second - 1, 50 * time.Second},
		"sooner":                      {2 * time.Second, time.Second},
		"sooner than what is renewed": {2 * time.Second, 5 * time.Second},
	}, func(t *testing.T, w *world, c move) {
		p, other := w.process(), w.process(patient)
		lease := w.await(p, "k", MaxHold(8*time.Second))
		time.Sleep(c.after)

		start, sends := time.Now(), w.requests()
		succeeds(t, lease.Extend(c.d))
		if c.d < 8*time.Second {
			synctest.Wait()
			if n := w.requests() - sends; n > 0 {
				t.Errorf("%d requests", n)
			}
		}

		testutil.Receive(t, lease.Context().Done())
		if held := time.Since(start); held != c.d {
			t.Errorf("held for %v more", held)
		}
		wantReason(t, lease.Lost(), LossMaxHold)

		w.freeAfter(other, "k")
		wantBetween(t, "free after", time.Since(start), c.d, c.d+10*time.Second+soon)
	})
}

// A nil error from Extend promises nothing of the nodes. If they confirm no renewal, the lease expires when it is no
// longer trusted.
func TestExtendOutOfReach(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.await(p, "k", MaxHold(5*time.Second))
		end := time.Now().Add(p.p.validity - p.p.margin)
		synctest.Wait()
		p.refused()
		succeeds(t, lease.Extend(time.Minute))
		if got := lease.ValidUntil(); got.After(end) {
			t.Errorf("valid until %v, want %v", got, end)
		}
		testutil.Receive(t, lease.Context().Done())
		wantReason(t, lease.Lost(), LossExpired)
		if time.Now().After(end) {
			t.Errorf("ended %v late", time.Since(end))
		}
	})
}

func TestBadExtension(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		wantErr(t, (*Lease)(nil).Extend(time.Second), ErrInvalid)
		wantErr(t, w.await(p, "endless").Extend(time.Minute), ErrInvalid)
		lease := w.await(p, "k", MaxHold(5*time.Second))
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			wantErr(t, lease.Extend(d), ErrInvalid)
		}
		time.Sleep(5*time.Second - 1)
		wantValid(t, lease)
	})
}

// A lease that is over is not extended.
func TestExtendAfterTheEnd(t *testing.T) {
	type leaseEnd struct {
		ends func(w *world, p *process, lease *Lease, cancel context.CancelFunc)
		want error
	}
	bubbles(t, 3, map[string]leaseEnd{
		"released": {func(w *world, _ *process, lease *Lease, _ context.CancelFunc) { w.release(lease) }, ErrReleased},
		"completed": {func(w *world, _ *process, lease *Lease, _ context.CancelFunc) {
			lease.Complete(w.t.Context(), nil)
		}, ErrReleased},
		"taken away":       {func(_ *world, p *process, _ *Lease, _ context.CancelFunc) { p.Close(over()) }, ErrLost},
		"run out":          {func(_ *world, _ *process, _ *Lease, _ context.CancelFunc) { time.Sleep(20 * time.Second) }, ErrLost},
		"its caller ended": {func(_ *world, _ *process, _ *Lease, cancel context.CancelFunc) { cancel() }, context.Canceled},
	}, func(t *testing.T, w *world, c leaseEnd) {
		p := w.process()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lease := w.awaitUnder(ctx, p, "k", MaxHold(20*time.Second))

		c.ends(w, p, lease, cancel)
		err := lease.Extend(time.Minute)
		wantErr(t, err, c.want)
		for _, other := range []error{ErrReleased, ErrLost, ErrUnavailable, context.Canceled} {
			if other != c.want && errors.Is(err, other) {
				t.Errorf("matches %v, too", other)
			}
		}
	})
}

// A renewal is not sent if the lease has ended since the renewal was planned. A busy machine may send it late.
func TestNoRenewalLeavesAfterTheEnd(t *testing.T) {
	type ending func(lease *Lease, cancel context.CancelFunc)
	bubbles(t, 3, map[string]ending{
		"its caller ended":     func(_ *Lease, cancel context.CancelFunc) { cancel() },
		"the max hold is over": func(lease *Lease, _ context.CancelFunc) { lease.Extend(time.Second); time.Sleep(time.Second) },
	}, func(t *testing.T, w *world, end ending) {
		p := w.process()
		renewals := p.counting(wire.OpRenew)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lease := w.awaitUnder(ctx, p, "k", MaxHold(time.Minute))
		p.stopTimers()
		r := lease.inspect(p.e.Clock.Now(), lease.renewAt)
		end(lease, cancel)
		r.start()
		synctest.Wait()
		if n := renewals.Load(); n > 0 {
			t.Errorf("%d renewals", n)
		}
	})
}
