package core

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
)

// These tests take bugs of other lock libraries with callers that cancel, and check what must happen instead.

// With redsync, cleaning up with the caller's cancelled context leaves the keys taken for a full TTL. Here ctx is
// cancelled at every instant of an acquisition whose messages take time, and nothing stays.
func TestCancelledAtEveryInstant(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for i, k := range p.links {
			d := time.Duration(i+1) * 3 * time.Millisecond
			k.Set(coretest.Fate{Delay: d, ReplyDelay: d})
		}
		for after := time.Duration(0); after < 40*time.Millisecond; after += time.Millisecond {
			key := fmt.Sprint("cancelled after ", after)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			lease, err := p.Acquire(ctx, key)
			if err == nil {
				lease.Release(t.Context())
			} else {
				wantErr(t, err, context.Canceled)
			}
			cancel()
			time.Sleep(100 * time.Millisecond)
			w.wantFree(p, key)
		}
		synctest.Wait()
		p.wantNothingLeft(t)
	})
}

// The same holds for waiters in the local queue and between two attempts.
func TestCancelledWhileWaiting(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, p := w.process(), w.process()
		lease := w.acquire(holder, "k")
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				_, err := p.Acquire(ctx, "k")
				wantOnly(t, err, context.Canceled)
			})
		}
		waiting.Wait()
		w.release(lease)
		w.release(w.acquire(p, "k"))
	})
}

// A context may be cancelled with the error of another key as its cause, as errgroup does. It ends a call like any
// other cancelled context.
func TestCancelledBecauseOfAnotherKey(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.holds(w.process(), "k")
		for _, err := range []error{ErrDone, ErrHeld, ErrUnavailable, ErrClosed, ErrLost, ErrReleased, ErrInvalid} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(&OpError{Op: OpAcquire, Key: "another", Err: err}) })
			wantOnly(t, p.Do(ctx, "k", func(context.Context) error { return nil }), context.Canceled)
		}
		w.release(lease)
	})
}

// A release works with a context that is already cancelled. Such contexts occur with gocron and gin.
func TestReleaseWithCancelledContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		ctx, cancel := context.WithCancel(t.Context())
		lease := must(p.Acquire(ctx, "k"))
		cancel()
		succeeds(t, lease.Release(ctx))
		synctest.Wait() // Release returns after two of three replies
		w.wantFree(p, "k")
	})
}
