package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Operators is what package admin has, which imports this one: its external tests hand it in.
var Operators struct {
	Diagnose      func(ctx context.Context, nodes []redis.UniversalClient, opts ...Option) (Diagnosis, error)
	Dial          func(urls []string, opts ...Option) ([]redis.UniversalClient, error)
	Provision     func(ctx context.Context, l *Locker) error
	Revoke        func(ctx context.Context, l *Locker, key string, token uint64) (Revocation, error)
	ForgetRecord  func(ctx context.Context, l *Locker, key string, token uint64) error
	TokenMismatch error
}

// What admin's calls return.
type (
	Revocation struct {
		Holder    Holder
		Remaining time.Duration
		Nodes     []NodeReply
	}
	Diagnosis struct {
		Nodes    []NodeDiagnosis
		Findings []Finding
	}
	NodeDiagnosis struct {
		Node     int
		Addr     string
		Reached  bool
		Err      error
		Findings []Finding
	}
	Finding struct{ Severity, Code, What, Fix string }
)

func (l *Locker) Provision(ctx context.Context) error { return Operators.Provision(ctx, l) }

func (l *Locker) Revoke(ctx context.Context, key string, token uint64) (Revocation, error) {
	return Operators.Revoke(ctx, l, key, token)
}

func (l *Locker) ForgetRecord(ctx context.Context, key string, token uint64) error {
	return Operators.ForgetRecord(ctx, l, key, token)
}

// A node that does not answer is an error, and the next call declares all nodes new once it does.
func TestProvisionAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.stranger()
		synctest.Wait() // New has claimed them
		w.nodes[1].Hang()
		w.nodes[2].Down()
		err := p.Provision(t.Context())
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "node 0 (", "not declared new", "node 1 (", "no answer", "node 2 (", "refused")
		w.nodes[1].Up()
		w.nodes[2].Up()
		succeeds(t, p.Provision(t.Context()))
		w.release(w.acquire(p, "k"))
	})
}

// Nodes that were claimed and could not be declared new do not vote, whatever they said before.
func TestProvisionWithoutTheDeclaration(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.stranger(TTL(5*time.Second), WithMaxTTL(time.Minute)) // after which it would vote by itself
		p.links[1].Decide(func(s wire.Op, q coretest.Sent) coretest.Fate {
			return coretest.Fate{Refuse: s == wire.OpProvision && q.Args[len(q.Args)-1] != wire.NoMemory} // the claim arrives, the declaration does not
		})
		err := p.Provision(t.Context())
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "node 1 (")
	})
}
