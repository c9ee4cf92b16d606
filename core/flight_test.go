package core

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// pausing is an attempt whose process is stopped whenever the lane looks whether it is over.
type pausing struct {
	asking
	looked *time.Time
}

func (p pausing) Sends(op wire.Op, node int) bool {
	*p.looked = time.Now()
	time.Sleep(10 * time.Millisecond)
	return p.asking.Sends(op, node)
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
		r.Init(p.e.Buckets[0], wire.OpAcquire, r.Timeout, pausing{asking{lease}, &looked}, r.Decided)
		r.Send(t.Context(), quorum.All(1))
		r.Wait(t.Context())
		if r.Count(wire.Granted) != 1 || looked.IsZero() {
			t.Fatalf("%v", r.Votes)
		}
		if stamp := m.batches[0][0].Wall; stamp.After(looked) {
			t.Errorf("stamped %v after the last look", stamp.Sub(looked))
		}
	})
}
