package core

import (
	"context"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/wire"
)

// A completion is repeated while its outcome is open, and for as long as its context says.
func TestCompletionIsRepeated(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		ended, timedOut := over(), func() context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		for _, c := range []struct {
			name string
			ctx  func() context.Context
			took time.Duration
		}{
			{"one that has ended", func() context.Context { return ended }, 0},
			{"no deadline", t.Context, p.p.ttl},
			{"a deadline", timedOut, 20 * time.Second},
			{"one that is cancelled", func() context.Context {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3*time.Second, cancel)
				return ctx
			}, 3 * time.Second},
		} {
			lease := w.acquire(p, "k")
			p.refused()
			began := time.Now()
			wantOnly(t, lease.Complete(c.ctx(), nil), ErrUnavailable)
			wantBetween(t, c.name, time.Since(began), c.took, c.took+p.p.nodeTimeout)
			p.mend()
			time.Sleep(time.Minute) // the next case begins with a free key
		}

		lease := w.acquire(p, "k")
		p.refused()
		time.AfterFunc(3*time.Second, p.mend)
		if err := lease.Complete(t.Context(), []byte("r")); err != nil {
			t.Error(err)
		}
		_, err := p.TryAcquire(t.Context(), "k")
		wantDone(t, err, Record{Token: lease.FencingToken(), Result: []byte("r")})
	})
}

// It ends when the record cannot count any more, and with the Locker, which need not wait for it. What became of it is
// still open.
func TestCompletionIsNotRepeatedForEver(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		p.refused()
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		began := time.Now()
		wantOnly(t, lease.Complete(ctx, nil), ErrUnavailable)
		counts := wire.IdleFence * 9 / 10 // since the lease could be trusted, by a clock that may be slow
		wantBetween(t, "until it counts no more", time.Since(began), counts, counts+p.p.ttl)

		p = w.process()
		lease = w.acquire(p, "another")
		p.refused()
		began = time.Now()
		time.AfterFunc(3*time.Second, func() { p.Close(t.Context()) })
		wantOnly(t, lease.Complete(ctx, nil), ErrUnavailable)
		wantBetween(t, "until the Locker ended", time.Since(began), 3*time.Second, 4*time.Second)
	})
}
