package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Between a batch's leaving the queue and its leaving the process, a request that was counted as not sent, or whose
// attempt has ended, is left out: nobody would release what it grants.
func TestNotEveryRequestBoards(t *testing.T) {
	for name, meanwhile := range map[string]func(r *node.Round, lease *Lease){
		"it was counted as not sent": func(r *node.Round, _ *Lease) { r.Wait(context.Background()) },
		"its attempt has ended":      func(_ *node.Round, lease *Lease) { lease.over() },
		"it is too old":              func(r *node.Round, _ *Lease) { time.Sleep(r.Timeout/2 + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				p := w.process()
				n := p.e.Nodes[0]
				n.Connections = 0 // nothing leaves by itself
				lease := p.newLease(t.Context(), "k")
				r := lease.acquiring(false)
				r.Decided = func(*node.Round) bool { return false }
				r.Send(t.Context(), quorum.All(1))
				meanwhile(r, lease)
				if n.Boards(p.e.Clock.Now()) != 0 {
					t.Error("sent all the same")
				}
				if n.InFlight() != 0 {
					t.Errorf("%d requests booked", n.InFlight())
				}
				n.Connections = 1
			})
		})
	}
}

// Nor does every renewal.
func TestNotEveryRenewalBoards(t *testing.T) {
	for name, meanwhile := range map[string]func(r *renewal, lease *Lease){
		"it was counted as not sent": func(r *renewal, _ *Lease) { r.Expire() },
		"its attempt has ended":      func(_ *renewal, lease *Lease) { lease.over() },
		"it is too old":              func(r *renewal, _ *Lease) { time.Sleep(r.Timeout + 1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, w *world) {
				p := w.process()
				n := p.e.Nodes[0]
				lease := w.acquire(p, "k")
				synctest.Wait()
				connections := n.Connections
				n.Connections = 0 // nothing leaves by itself
				p.stopTimers()
				r := lease.renewalNow()
				r.Send(t.Context(), quorum.All(1))
				meanwhile(r, lease)
				if n.Boards(p.e.Clock.Now()) != 0 {
					t.Error("sent all the same")
				}
				n.Connections = connections
			})
		})
	}
}

// pausing is an attempt whose process is stopped whenever the lane looks whether it is over.
type pausing struct {
	*asking
	looked *time.Time
}

func (p pausing) IsEnded() bool {
	*p.looked = time.Now()
	time.Sleep(10 * time.Millisecond)
	return p.asking.IsEnded()
}

// A request bears a time from before the last look whether its attempt is over: what ends after that look, while the
// process is stopped, has a tombstone that outlives every request which still seems fresh to the node.
func TestStampBeforeTheLastLook(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process()
		m := &manifest{}
		p.e.Nodes[0].Client.(*redis.Client).AddHook(m)
		lease := p.newLease(t.Context(), "k")
		r := lease.acquiring(false)
		var looked time.Time
		r.Init(p.e.Group, wire.OpAcquire, 0, r.Timeout, pausing{(*asking)(&lease.attempt), &looked}, r.Decided)
		r.Send(t.Context(), quorum.All(1))
		r.Wait(t.Context())
		if r.Count(wire.Granted) != 1 || looked.IsZero() {
			t.Fatalf("%v", r.Votes)
		}
		args := m.batches[0][0].Args
		if stamp := time.UnixMicro(args[coretest.WallArg(args)].(int64)); stamp.After(looked) {
			t.Errorf("stamped %v after the last look", stamp.Sub(looked))
		}
	})
}
