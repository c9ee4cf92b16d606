package core

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

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
