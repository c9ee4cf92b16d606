package core

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// Whatever happens to the write-back of a token, an attempt either gets its lease or leaves nothing on the nodes that
// it can reach. A key without a holder must not stay taken.
func TestWriteBackLeavesNothing(t *testing.T) {
	type delivery struct {
		fate  testutil.Action
		grant bool
	}
	bubbles(t, 3, map[string]delivery{
		"undisturbed":                     {testutil.Action{}, true},
		"delivered twice":                 {testutil.Action{Twice: true}, false},
		"reply lost":                      {testutil.Action{DropReply: true}, false},
		"delayed beyond the clock window": {testutil.Action{Delay: 600 * time.Millisecond}, false},
		"delayed beyond the node timeout": {testutil.Action{Delay: 1200 * time.Millisecond}, false},
	}, func(t *testing.T, w *world, c delivery) {
		l := must(New(testutil.Clients(w.nodes), WithRestartGuard(false), quietly))
		defer l.Close(t.Context())
		p := &process{Locker: l}

		// Node 0 has a counter ahead of the clock, and nodes 0 and 1 are needed for a quorum. So the token of node 0
		// must be written back to node 1.
		w.nodes[2].Hang()
		ahead := time.Now().Add(time.Minute).UnixMicro()
		w.setCounter(p, 0, "k", ahead)
		w.writeBacks(c.fate)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		lease, err := patientTry(l).TryAcquire(ctx, "k")
		if (err == nil) != c.grant {
			t.Errorf("TryAcquire: %v", err)
		}
		if err == nil {
			if lease.FencingToken() != uint64(ahead)+1 {
				t.Errorf("token %d, want %d", lease.FencingToken(), ahead+1)
			}
			w.release(lease)
		}

		time.Sleep(4 * time.Second) // until all repeated requests are over, but well within the TTL
		for i := range 2 {
			if r := w.resource(p, i, "k"); r.Expiry != 0 {
				t.Errorf("node %d is still taken: %+v", i, r)
			}
		}
	})
}

// writeBacks sets the action of every node for each request that writes a counter back.
func (w *world) writeBacks(do testutil.Action) {
	w.t.Helper()
	for _, n := range w.nodes {
		for _, source := range coretest.Sources() { // so that a write-back is one request
			must(n.Exec("SCRIPT", "LOAD", source))
		}
		n.OnRequest(func(args []string) testutil.Action {
			if slices.ContainsFunc(coretest.RequestsOfText(args), func(q coretest.Sent) bool { return q.Op == wire.OpRenew }) {
				return do
			}
			return testutil.Action{}
		})
	}
}
