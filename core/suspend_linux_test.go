package core

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// sleepThrough makes a process believe that its machine was suspended for d: Go's clock and timers stand still, but
// CLOCK_BOOTTIME and the wall clock run on.
func (p *process) sleepThrough(d time.Duration) {
	synctest.Wait() // no goroutine reads the clock meanwhile
	p.e.watchdog.mu.Lock()
	defer p.e.watchdog.mu.Unlock()
	p.e.Clock.Suspend(d)
}

// If a machine was suspended past the end of a lease, the first check finds the context ended.
func TestSuspendedPastTheLease(t *testing.T) {
	bubbles(t, 3, map[string]func(*Lease) bool{
		"Err":  func(l *Lease) bool { return l.Context().Err() != nil },
		"Done": func(l *Lease) bool { return isClosed(l.Context().Done()) },
	}, func(t *testing.T, w *world, ended func(*Lease) bool) {
		p := w.process()
		lease := w.acquire(p, "k")
		p.sleepThrough(time.Hour)
		if !ended(lease) {
			t.Error("has not ended")
		}
		wantErr(t, context.Cause(lease.Context()), ErrLost)
	})
}

// If a machine was suspended past the end of any lease of a set, the first check finds the context of the set ended,
// although no timer has fired and the other leases are valid.
func TestSuspendedPastALeaseOfASet(t *testing.T) {
	for name, ended := range map[string]func(context.Context) bool{
		"Err":  func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(ctx context.Context) bool { return isClosed(ctx.Done()) },
	} {
		for _, short := range threeKeys {
			bubbleNamed(t, name+" of "+short, 3, func(t *testing.T, w *world) {
				p := w.process()
				set := w.acquireAll(p, threeKeys...)
				time.Sleep(2 * time.Second)
				for _, lease := range set.leases {
					if lease.Key() != short {
						lease.renew()
					}
				}
				synctest.Wait()

				p.sleepThrough(time.Until(set.of(t, short).ValidUntil()))
				if !ended(set.Context()) {
					t.Error("has not ended")
				}
				wantReason(t, context.Cause(set.Context()), LossExpired)
				if op, _ := errors.AsType[*OpError](set.Lost()); op.Key != short {
					t.Errorf("%q is lost, want %q", op.Key, short)
				}
				wantReason(t, set.Release(t.Context()), LossExpired)
			})
		}
	}
}

// A context that was derived from the lease's before the suspension does not read the clock. It ends when the watchdog next
// wakes: within a second of the resume.
func TestDerivedContextAfterASuspension(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		child, cancel := context.WithCancel(lease.Context())
		defer cancel()
		p.sleepThrough(time.Hour)
		time.Sleep(clock.MaxTimer)
		synctest.Wait()
		wantErr(t, context.Cause(child), ErrLost)
	})
}

// If a machine was suspended past the end of a lease, Release returns ErrLost, even if the context was not checked
// before.
func TestReleasePastTheLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		p.sleepThrough(time.Hour)
		wantErr(t, lease.Release(t.Context()), ErrLost)
		wantErr(t, lease.Lost(), ErrLost)
	})
}

func TestSuspensionShorterThanTheLease(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		before := time.Until(lease.ValidUntil())
		p.sleepThrough(2 * time.Second)
		if left := time.Until(lease.ValidUntil()); before-left != 2*time.Second {
			t.Errorf("%v left of %v after 2s", left, before)
		}
		time.Sleep(time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Error(context.Cause(lease.Context()))
		}
		w.release(lease)
	})
}
