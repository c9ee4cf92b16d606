package core

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A revoked lease is not renewed any more. No other process gets the key while the holder may still act on the lease.
func TestRevoke(t *testing.T) {
	onNodes(t, []int{1, 3, 5}, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.acquire(p, "k")
		time.Sleep(time.Minute)
		w.pass(time.Second) // no renewal is under way

		r, err := operator.Revoke(t.Context(), "k", lease.FencingToken())
		if err != nil {
			t.Fatal(err)
		}
		if r.Holder.Token != lease.FencingToken() || r.Remaining < lease.remaining() || r.Remaining > p.p.ttl+time.Millisecond {
			t.Errorf("%+v, the holder trusts for %v", r, lease.remaining())
		}
		w.wantRefused(operator, "k", ErrHeld)

		until := time.Now().Add(r.Remaining)
		<-lease.Context().Done()
		wantReason(t, lease.Lost(), LossRevoked)
		if err := lease.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("release: %v", err)
		}

		time.Sleep(time.Until(until) - 2*time.Millisecond)
		w.wantRefused(operator, "k", ErrHeld)
		time.Sleep(3 * time.Millisecond)
		if next := w.acquire(operator, "k"); next.FencingToken() <= lease.FencingToken() {
			t.Errorf("token %d after %d", next.FencingToken(), lease.FencingToken())
		}
	})
}

// A holder that releases or completes a revoked lease gets the reason revoked.
func TestRevokedHolderIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		end func(ctx context.Context, lease *Lease) error
	}{
		"release":  {func(ctx context.Context, lease *Lease) error { return lease.Release(ctx) }},
		"complete": {func(ctx context.Context, lease *Lease) error { return lease.Complete(ctx, nil) }},
	} {
		bubbleNamed(t, name, 3, func(t *testing.T, w *world) {
			p, operator := w.process(), w.process()
			lease := w.acquire(p, "k")
			w.pass(time.Second)
			if _, err := operator.Revoke(t.Context(), "k", lease.FencingToken()); err != nil {
				t.Fatal(err)
			}
			err := c.end(t.Context(), lease)
			wantReason(t, err, LossRevoked)
			wantReason(t, lease.Release(t.Context()), LossRevoked)
		})
	}
}

// Revoke ends only the lease with the given token.
func TestRevokeDoesNotGuess(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)

		for name, c := range map[string]struct {
			key   string
			token uint64
			want  error
		}{
			"another token": {"k", lease.FencingToken() + 1, Operators.TokenMismatch},
			"no token":      {"k", 0, Operators.TokenMismatch},
			"nobody holds":  {"other", 0, Operators.TokenMismatch},
			"bad key":       {"", 1, ErrInvalid},
		} {
			if _, err := operator.Revoke(t.Context(), c.key, c.token); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		time.Sleep(time.Minute)
		wantValid(t, lease)

		// The lease is released, and another one is granted, while the revocation is on its way.
		token := lease.FencingToken()
		var next *Lease
		for _, k := range operator.links {
			k.Next(coretest.Fate{Delay: 500 * time.Millisecond}, wire.OpRevoke)
		}
		time.AfterFunc(100*time.Millisecond, func() {
			w.release(lease)
			next = w.acquire(p, "k")
		})
		if _, err := operator.Revoke(t.Context(), "k", token); !errors.Is(err, Operators.TokenMismatch) {
			t.Errorf("of a lease that has ended: %v", err)
		}
		w.pass(time.Minute)
		wantValid(t, next)
	})
}

// A quorum can end a lease even if the other nodes are away. A minority cannot.
func TestRevokeNeedsAQuorum(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		w.nodes[0].Down()
		w.nodes[1].Down()
		if _, err := operator.Revoke(t.Context(), "k", lease.FencingToken()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}
		w.nodes[1].Up()
		operator.links[1].Next(coretest.Fate{Lose: true}, wire.OpRevoke)
		if _, err := operator.Revoke(t.Context(), "k", lease.FencingToken()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", err)
		}

		lease = w.acquire(p, "other")
		w.pass(time.Second)
		r, err := operator.Revoke(t.Context(), "other", lease.FencingToken())
		if err != nil || r.Nodes[0].Verdict == VerdictGranted {
			t.Fatalf("%+v, %v", r, err)
		}
		w.nodes[0].Up() // this node does not know of the revocation, and may grant renewals
		<-lease.Context().Done()
		wantReason(t, lease.Lost(), LossRevoked)
	})
}

// A lease that one of three nodes still has is not held if the other nodes answer that they do not have it.
func TestRevokeOfARemnant(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, operator := w.process(unrenewed), w.process()
		lease := w.acquire(holder, "k")
		synctest.Wait()
		w.forget(holder, 1, "k")
		w.forget(holder, 2, "k")
		_, err := operator.Revoke(t.Context(), "k", lease.FencingToken())
		wantErr(t, err, Operators.TokenMismatch)
	})
}

// Revoke and ForgetRecord end with their context. After Close they return ErrClosed.
func TestRevokeEnds(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		for _, k := range operator.links {
			k.Set(coretest.Fate{Lose: true}, wire.OpRevoke, wire.OpForget)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := operator.Revoke(ctx, "k", lease.FencingToken()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if err := operator.ForgetRecord(ctx, "k", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}

		operator.Close(t.Context())
		if _, err := operator.Revoke(t.Context(), "k", lease.FencingToken()); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
		if err := operator.ForgetRecord(t.Context(), "k", 1); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

// ForgetRecord drops a record on all nodes, or returns an error.
func TestForgetRecord(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p, operator := w.process(), w.process()
		lease := w.acquire(p, "k")
		w.pass(time.Second)
		succeeds(t, lease.Complete(t.Context(), []byte("done")))
		w.pass(time.Second)
		token := lease.FencingToken()
		for _, wrong := range []uint64{0, token + 1} {
			wantErr(t, operator.ForgetRecord(t.Context(), "k", wrong), Operators.TokenMismatch)
		}
		wantErr(t, operator.ForgetRecord(t.Context(), "none", token), Operators.TokenMismatch)
		w.wantRefused(operator, "k", ErrDone)

		w.nodes[0].Down()
		err := operator.ForgetRecord(t.Context(), "k", token)
		wantErr(t, err, ErrUnavailable)
		if op, _ := errors.AsType[*OpError](err); op.Op != OpForget || !slices.ContainsFunc(op.Nodes, func(n NodeReply) bool { return n.Node == 0 && n.Err != nil }) {
			t.Errorf("%v", err)
		}
		w.nodes[0].Up()
		w.pass(10 * time.Second)
		succeeds(t, operator.ForgetRecord(t.Context(), "k", token))
		if next := w.acquire(p, "k"); next.FencingToken() <= token {
			t.Errorf("token %d after %d", next.FencingToken(), token)
		}
	})
}

func (w *world) wantRefused(p *process, key string, why error) {
	w.t.Helper()
	if _, err := p.TryAcquire(w.t.Context(), key); !errors.Is(err, why) {
		w.t.Errorf("acquire: %v, want %v", err, why)
	}
}
