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
)

// These tests check how long a key stays taken after a release with a cooldown, however the key is asked for and
// whatever happens to the release.

// releaseFor releases a lease with a cooldown.
func (w *world) releaseFor(lease *Lease, d time.Duration) {
	w.t.Helper()
	if err := lease.Release(context.Background(), Cooldown(d)); err != nil {
		w.t.Errorf("release: %v", err)
	}
}

// A waiter gets the key at the end of the cooldown, and no caller gets it sooner. This holds in the process of the
// holder, to which the key would otherwise be handed on, and in other processes.
func TestCooldown(t *testing.T) {
	for name, c := range map[string]struct {
		held, cooldown time.Duration
		free           time.Duration // after the release
	}{
		"short":               {time.Second, 4 * time.Second, 4 * time.Second},
		"longer than the TTL": {time.Second, 40 * time.Second, 40 * time.Second},
		"parts of a ms":       {900 * time.Microsecond, 1500 * time.Microsecond, 1500 * time.Microsecond},
		"less than a ms":      {time.Millisecond, time.Microsecond, time.Microsecond},
		"none":                {time.Second, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
				p, other := w.process(), w.process()
				for _, where := range []*process{p, other} {
					lease := must(p.Acquire(t.Context(), "k"))
					next := w.waits(where, "k")
					// The hold counts from the request.
					time.Sleep(time.Until(lease.ValidUntil().Add(lease.attempt.p.margin - lease.attempt.p.validity + c.held)))
					released := time.Now()
					w.releaseFor(lease, c.cooldown)
					wantBetween(t, "free after", w.gets(next, released), c.free, c.free+5*time.Millisecond)
					w.release(next.lease)
					synctest.Wait()
				}
			})
		})
	}
}

// A refused caller learns when to come back, both during the release and after it.
func TestRetryAfterACooldown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		const oneWay = 100 * time.Millisecond
		p, other := w.process(), w.process()
		lease := w.holds(p, "k")
		if _, err := other.TryAcquire(t.Context(), "k"); !errors.Is(err, ErrHeld) || isKept(err) {
			t.Errorf("while it is held: %v", err)
		}

		p.set(coretest.Fate{Delay: oneWay, ReplyDelay: oneWay}, wire.OpRelease)
		free := time.Now().Add(time.Minute)
		go w.releaseFor(lease, time.Minute)
		for _, at := range []time.Duration{0, 3 * oneWay, 30 * time.Second} {
			w.pass(time.Until(free.Add(at - time.Minute)))
			for _, asker := range []*process{p, other} {
				if asker == other && at == 0 {
					continue // no node knows of the release yet
				}
				_, err := asker.TryAcquire(t.Context(), "k")
				wantErr(t, err, ErrHeld)
				op, _ := errors.AsType[*OpError](err)
				wantBetween(t, "retry after", op.RetryAfter, time.Until(free), time.Until(free)+oneWay+5*time.Millisecond)
				if want := at > 0; isKept(err) != want { // at first the key still has its holder
					t.Errorf("%v after the release began: kept %v: %v", at, isKept(err), err)
				}
			}
		}
	})
}

func isKept(err error) bool {
	op, ok := errors.AsType[*OpError](err)
	return ok && op.Held == HeldCooldown
}

// However often a release is repeated, by its caller or in the background, only the cooldown of the first one counts.
func TestCooldownOfTheFirstRelease(t *testing.T) {
	const d = 6 * time.Second
	again := func(later time.Duration, opts ...ReleaseOption) func(*Lease) error {
		return func(lease *Lease) error {
			time.Sleep(later)
			return lease.Release(context.Background(), opts...)
		}
	}

	for name, c := range map[string]struct {
		lost  bool // the first release is lost
		again func(*Lease) error
	}{
		"confirmed":              {false, again(time.Second)},
		"confirmed, longer":      {false, again(time.Second, Cooldown(time.Minute))},
		"lost":                   {true, again(0)},
		"lost, longer":           {true, again(0, Cooldown(time.Minute))},
		"lost, shorter":          {true, again(0, Cooldown(time.Second))},
		"lost, later":            {true, again(500 * time.Millisecond)},
		"lost, then in the back": {true, func(*Lease) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
				p, other := w.process(), w.process()
				lease := w.holds(p, "k")
				next := w.waits(other, "k")

				if c.lost {
					p.next(coretest.Fate{Refuse: true}, wire.OpRelease)
				}
				released := time.Now()
				if err := lease.Release(t.Context(), Cooldown(d)); c.lost != errors.Is(err, ErrUnavailable) {
					t.Fatalf("the schedule is off: %v", err)
				}
				if err := c.again(lease); err != nil {
					t.Errorf("released again: %v", err)
				}

				wantBetween(t, "free after", w.gets(next, released), d, d+5*time.Millisecond)
				w.release(next.lease)
			})
		})
	}
}

// The release by Do does not cut short the cooldown that fn has set.
func TestCooldownInDo(t *testing.T) {
	bubbles(t, 3, map[string]bool{"confirmed": false, "lost": true}, func(t *testing.T, w *world, lost bool) {
		const d = 4 * time.Second
		p, other := w.process(), w.process()
		var released time.Time
		var next *caller

		err := p.Do(t.Context(), "k", func(ctx context.Context) error {
			synctest.Wait()
			next = w.waits(other, "k")
			if lost {
				p.next(coretest.Fate{Refuse: true}, wire.OpRelease)
			}
			lease, _ := FromContext(ctx)
			released = time.Now()
			if err := lease.Release(ctx, Cooldown(d)); lost != errors.Is(err, ErrUnavailable) {
				t.Errorf("the schedule is off: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		wantBetween(t, "free after", w.gets(next, released), d, d+5*time.Millisecond)
		w.release(next.lease)
	})
}

// After a loss there is no cooldown, and Release returns the loss, even if the process was paused.
func TestNoCooldownAfterALoss(t *testing.T) {
	bubbles(t, 3, map[string]bool{"lost": false, "paused": true}, func(t *testing.T, w *world, paused bool) {
		p, other := w.process(unrenewed), w.process()
		lease := w.holds(p, "k")
		if paused {
			p.stopTimers()
		}
		time.Sleep(10*time.Second - time.Millisecond)
		wantReason(t, lease.Release(t.Context(), Cooldown(time.Minute)), LossExpired)
		synctest.Wait()
		w.release(w.acquire(other, "k"))
	})
}

// An invalid option changes nothing.
func TestUnfitReleaseOptions(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		for name, opts := range map[string][]ReleaseOption{
			"nil": {nil}, "negative": {Cooldown(-1)}, "too long": {Cooldown(wire.ExpirySlack + 1)}, "one of two": {Cooldown(1), nil},
		} {
			if err := lease.Release(t.Context(), opts...); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: error is %v", name, err)
			}
			wantValid(t, lease)
		}
		w.releaseFor(lease, wire.ExpirySlack)
		_, err := p.TryAcquire(t.Context(), "k")
		op, _ := errors.AsType[*OpError](err)
		wantBetween(t, "retry after", op.RetryAfter, wire.ExpirySlack, wire.ExpirySlack+time.Millisecond)
	})
}

// During a cooldown, the next caller of the process asks after the release and not together with it. It asks to learn
// how long it has to wait.
func TestNothingIsHandedOnInACooldown(t *testing.T) {
	onNodes(t, []int{1, 3}, func(t *testing.T, w *world) {
		const oneWay = 5 * time.Millisecond
		p := w.process()
		lease := w.holds(p, "k")
		next := w.waits(p, "k")

		var asked atomic.Int64
		for _, k := range p.links {
			k.Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
				if s == wire.OpAcquire {
					asked.Add(1)
				}
				return coretest.Fate{Delay: oneWay, ReplyDelay: oneWay}
			})
		}

		released := time.Now()
		go w.releaseFor(lease, time.Second)
		w.pass(oneWay)
		if n := asked.Load(); n > 0 {
			t.Errorf("asked %d times before the release was confirmed", n)
		}

		wantBetween(t, "free after", w.gets(next, released), time.Second, time.Second+5*oneWay)
		w.release(next.lease)
	})
}
