package core

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// A renewal that others keep from a node comes again before its turn there ends, but only every other one is early:
// whoever stays there must not cost the nodes a renewal each ttl/20.
func TestEveryOtherRenewalIsEarly(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.e.jitter = func(n int64) int64 { return n / 2 }
		lease := w.acquire(p, "k")
		w.change(p, 2, "k", func(r *testutil.Resource) {
			r.Owner, r.Expiry = "another", time.Now().Add(time.Hour).UnixMilli()
		})
		var sent []time.Time
		p.set(coretest.Fate{ReplyDelay: time.Millisecond}, wire.OpRenew) // after node 2 has refused
		p.links[2].Decide(func(s wire.Op, _ coretest.Sent) coretest.Fate {
			if s == wire.OpRenew {
				sent = append(sent, time.Now())
			}
			return coretest.Fate{}
		})
		w.pass(time.Minute)
		if len(sent) < 10 {
			t.Fatalf("%d renewals", len(sent))
		}
		for i := range sent[1:] {
			want := p.p.renewEvery
			if i%2 == 0 {
				want = p.p.ttl/20 + time.Millisecond
			}
			if got := sent[i+1].Sub(sent[i]); got != want {
				t.Errorf("renewal %d comes after %v, want %v", i+1, got, want)
			}
		}
		want := sent[len(sent)-1].UnixMilli() + (p.p.ttl/20 + p.p.nodeTimeout).Milliseconds()
		if turn := w.resource(p, 2, "k").TurnUntil; turn != want {
			t.Errorf("the turn lasts until %d, want %d", turn, want)
		}
		if lease.Context().Err() != nil {
			t.Error("lost")
		}
	})
}
