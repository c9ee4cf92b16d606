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

// Operators has the functions of package admin. That package imports this one, so the external tests set them.
var Operators struct {
	Diagnose      func(ctx context.Context, nodes []redis.UniversalClient, opts ...Option) (Diagnosis, error)
	Dial          func(urls []string, opts ...Option) ([]redis.UniversalClient, error)
	Provision     func(ctx context.Context, l *Locker) error
	Revoke        func(ctx context.Context, l *Locker, key string, token uint64) (Revocation, error)
	ForgetRecord  func(ctx context.Context, l *Locker, key string, token uint64) error
	TokenMismatch error
}

// These types mirror the results of package admin.
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

// Provision returns an error if a node does not answer. The next call declares all nodes new when they answer.
func TestProvisionAgain(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.stranger()
		synctest.Wait() // until New has asked the nodes
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

// If a node was claimed but not declared new, Provision returns an error.
func TestProvisionWithoutTheDeclaration(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.stranger(TTL(5*time.Second), WithMaxTTL(time.Minute)) // an undeclared node votes after a minute

		// The claim reaches node 1, but the declaration does not.
		p.links[1].Decide(func(s wire.Op, q coretest.Sent) coretest.Fate {
			return coretest.Fate{Refuse: s == wire.OpProvision && q.Args[len(q.Args)-1] != wire.NoMemory}
		})
		err := p.Provision(t.Context())
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "node 1 (")
	})
}
