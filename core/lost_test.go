package core

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/internal/join"
	"github.com/lockkit/lockkit/internal/race"
)

// If a lease runs out while the process is paused, a context that is joined with the lease's context has ended at the
// first look.
func TestJoinedLeaseRunsOutInAPause(t *testing.T) {
	race.SkipSweep(t)
	for name, ended := range map[string]func(context.Context) bool{
		"Err":  func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(ctx context.Context) bool { return isClosed(ctx.Done()) },
	} {
		for place, joined := range map[string]func(lease, other context.Context) (context.Context, func()){
			"first":  func(lease, other context.Context) (context.Context, func()) { return join.Contexts(lease, other) },
			"second": func(lease, other context.Context) (context.Context, func()) { return join.Contexts(other, lease) },
		} {
			bubbleNamed(t, name+" "+place, 3, func(t *testing.T, w *world) {
				p := w.process()
				lease := w.acquire(p, "k")
				joint, stop := joined(lease.Context(), t.Context())
				defer stop()
				p.stopTimers()
				time.Sleep(time.Hour)
				if !ended(joint) {
					t.Error("has not ended")
				}
				wantErr(t, context.Cause(joint), ErrLost)
				wantErr(t, lease.Lost(), ErrLost)
			})
		}
	}
}

// A lease is lost only if it ended before its holder ended it.
func TestLost(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		ctx, cancel := context.WithCancel(t.Context())
		left, err := p.Acquire(ctx, "left")
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancelCause(t.Context())
		other := must(p.Acquire(ctx, "other"))
		released, lost := w.acquire(p, "released"), w.acquire(p, "lost")

		w.release(released)
		cancel()
		end(&OpError{Op: OpHold, Key: "not other", Err: ErrLost}) // as errgroup does

		for _, lease := range []*Lease{left, released, lost, other} {
			if err := lease.Lost(); err != nil {
				t.Errorf("%q: %v", lease.Key(), err)
			}
		}

		for _, n := range w.nodes {
			n.Down()
		}
		time.Sleep(p.p.ttl)
		err = lost.Lost()
		wantErr(t, err, ErrLost)
		wantReason(t, err, LossExpired)
		for _, n := range w.nodes {
			n.Up()
		}
	})
}

// A caller may look at a lease that has run out while another goroutine is about to record this. It sees the cause of
// the end in the lease, in its context, and in a context joined with it.
func TestLossIsSeenWithItsCause(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		lease := w.acquire(w.process(unrenewed), "k")
		joint, stop := join.Contexts(t.Context(), lease.Context())
		defer stop()

		lease.attempt.mu.Lock()
		lease.liveUntil.Store(lease.attempt.e.Clock.Now()) // before its timer fires

		var lookers sync.WaitGroup
		for range 9 {
			lookers.Go(func() {
				if err := lease.Lost(); !errors.Is(err, ErrLost) {
					t.Errorf("the lease ended with %v", err)
				}
				for name, ctx := range map[string]context.Context{"the lease's": lease.Context(), "the joint": joint} {
					if err := ctx.Err(); err != context.Canceled || !errors.Is(context.Cause(ctx), ErrLost) {
						t.Errorf("%s context ended with %v, cause %v", name, err, context.Cause(ctx))
					}
				}
			})
		}

		runtime.Gosched() // lets them reach the lock
		lease.attempt.mu.Unlock()
		lookers.Wait()
	})
}
