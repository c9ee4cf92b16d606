package core

import (
	"context"
	"testing"
	"time"
)

// RetryFor repeats a completion while its outcome is open, and no longer.
func TestRetryFor(t *testing.T) {
	const d = 20 * time.Second
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		cut := func() *Lease {
			lease := w.acquire(p, "k")
			for _, k := range p.links {
				k.set(fate{refuse: true})
			}
			return lease
		}
		complete := func(ctx context.Context, opts ...CompleteOption) (time.Duration, error) {
			began, lease := time.Now(), cut()
			err := lease.Complete(ctx, []byte("r"), opts...)
			return time.Since(began), err
		}
		again := func() { // the next case begins with a free key
			p.mend()
			time.Sleep(time.Minute)
		}

		took, err := complete(t.Context())
		wantOnly(t, err, ErrUnavailable)
		wantBetween(t, "one round took", took, 0, time.Second)
		again()

		took, err = complete(t.Context(), RetryFor(d))
		wantOnly(t, err, ErrUnavailable)
		wantBetween(t, "all rounds took", took, d, d+time.Second)
		again()

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		took, err = complete(ctx, RetryFor(d))
		wantOnly(t, err, ErrUnavailable)
		wantBetween(t, "until the end of the context it took", took, 3*time.Second, 4*time.Second)
		again()
		took, err = complete(ctx, RetryFor(d))
		wantOnly(t, err, ErrUnavailable)
		wantBetween(t, "with a context that has ended it took", took, 0, time.Second)
		cancel()
		again()

		ctx, cancel = context.WithCancel(t.Context())
		lease := cut()
		time.AfterFunc(3*time.Second, func() {
			p.mend()
			cancel()
		})
		if err := lease.Complete(ctx, []byte("last"), RetryFor(d)); err != nil {
			t.Errorf("the last try: %v", err)
		}
		_, err = p.TryAcquire(t.Context(), "k")
		wantDone(t, err, Record{Token: lease.FencingToken(), Result: []byte("last")})
	})
}

// Nor does it wait for a Locker that is being closed.
func TestRetryForEndsWithTheLocker(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "k")
		for _, k := range p.links {
			k.set(fate{refuse: true})
		}
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { p.Close(t.Context()) })
		wantOnly(t, lease.Complete(t.Context(), nil, RetryFor(time.Hour)), ErrUnavailable)
		wantBetween(t, "it took", time.Since(began), 3*time.Second, 4*time.Second)
	})
}
