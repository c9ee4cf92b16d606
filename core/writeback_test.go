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

// Whatever becomes of the write-back of a token, an attempt either gets its lease or leaves nothing on nodes
// that can be reached: a key that nobody holds must not stay taken.
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
		// A counter ahead of the clock on one node, and the other is needed: it has to be written back.
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
		time.Sleep(4 * time.Second) // well within the TTL, and beyond what is sent again
		for i := range 2 {
			if r := w.resource(p, i, "k"); r.Expiry != 0 {
				t.Errorf("node %d is still taken: %+v", i, r)
			}
		}
	})
}

// writeBacks has every node do this with each request that writes a counter back.
func (w *world) writeBacks(do testutil.Action) {
	w.t.Helper()
	for _, n := range w.nodes {
		for _, source := range coretest.Sources() { // one request per write-back
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
