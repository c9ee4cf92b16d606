package core

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Provision asks again where nodes did not answer, and declares them new once all have.
func TestProvisionAsksAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.stranger()
		w.nodes[1].Hang()
		w.nodes[2].Down()
		later := time.AfterFunc(2*time.Second, func() { w.nodes[1].Up(); w.nodes[2].Up() })
		defer later.Stop()
		if err := p.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.release(w.acquire(p, "k"))
	})
}

// It does so for as long as a TTL, unless its caller or Close ends it before.
func TestProvisionGivesUp(t *testing.T) {
	const ttl = 10 * time.Second
	errEnough := errors.New("enough")
	for name, c := range map[string]struct {
		ends        func(ctx context.Context, p *process) (context.Context, context.CancelFunc)
		least, most time.Duration
		want, not   error
	}{
		"by itself": {func(ctx context.Context, _ *process) (context.Context, context.CancelFunc) {
			return context.WithCancel(ctx)
		}, ttl, ttl + 2*time.Second, ErrUnavailable, context.DeadlineExceeded},
		"by the deadline": {func(ctx context.Context, _ *process) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Second)
		}, 5 * time.Second, 5 * time.Second, errors.Join(ErrUnavailable, context.DeadlineExceeded), ErrClosed},
		"by its caller": {func(ctx context.Context, _ *process) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(5*time.Second, func() { cancel(errEnough) })
			return ctx, func() { cancel(nil) }
		}, 5 * time.Second, 5 * time.Second, errEnough, ErrUnavailable},
		"by Close": {func(ctx context.Context, p *process) (context.Context, context.CancelFunc) {
			time.AfterFunc(5*time.Second, func() { _ = p.Close(ctx) })
			return context.WithCancel(ctx)
		}, 5 * time.Second, 6 * time.Second, ErrClosed, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				p := w.stranger(TTL(ttl))
				w.nodes[1].Down()
				start := time.Now()
				ctx, cancel := c.ends(t.Context(), p)
				defer cancel()
				err := p.Provision(ctx)
				wantBetween(t, "gives up", time.Since(start), c.least, c.most)
				for _, want := range unjoined(c.want) {
					wantErr(t, err, want)
				}
				if errors.Is(err, c.not) {
					t.Errorf("%v matches %v", err, c.not)
				}
			})
		})
	}
}

func unjoined(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// Nodes that were claimed and could not be declared new do not vote, whatever they said before.
func TestProvisionWithoutTheDeclaration(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.stranger(TTL(5*time.Second), WithMaxTTL(time.Minute)) // after which it would vote by itself
		p.links[1].decide(func(s *script, args []any) fate {
			return fate{refuse: s == provisionScript && args[len(args)-1] != noMemory} // the claim arrives, the declaration does not
		})
		err := p.Provision(t.Context())
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "node 1 (")
	})
}
