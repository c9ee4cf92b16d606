package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

// Whatever becomes of the write-back of a token, an attempt either gets its lease or leaves nothing on nodes
// that can be reached: a key that nobody holds must not stay taken.
func TestWriteBackLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fate  testutil.Action
		grant bool
	}{
		{"undisturbed", testutil.Action{}, true},
		{"delivered twice", testutil.Action{Twice: true}, false},
		{"reply lost", testutil.Action{DropReply: true}, false},
		{"delayed beyond the clock window", testutil.Action{Delay: 600 * time.Millisecond}, false},
		{"delayed beyond the node timeout", testutil.Action{Delay: 1200 * time.Millisecond}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := testutil.NewNodes(t, 3)
				l, err := New(testutil.Clients(nodes), WithRestartGuard(false), quietly)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close(t.Context())
				resource := l.e.keys.resource("k")
				// A counter ahead of the clock on one node, and the other is needed: it has to be written back.
				nodes[2].Hang()
				ahead := time.Now().Add(time.Minute).UnixMicro()
				counter := testutil.Resource{Counter: ahead, Before: -1}
				if _, err := nodes[0].Exec("SET", resource, counter.String(), "PX", time.Hour.Milliseconds()); err != nil {
					t.Fatal(err)
				}
				for _, n := range nodes {
					if _, err := n.Exec("SCRIPT", "LOAD", renewScript.source); err != nil { // one request per write-back
						t.Fatal(err)
					}
					n.OnRequest(func(args []string) testutil.Action {
						if len(args) > 1 && args[1] == renewScript.sha {
							return c.fate
						}
						return testutil.Action{}
					})
				}
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
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(4 * time.Second) // well within the TTL, and beyond what is sent again
				for i, n := range nodes[:2] {
					v, err := n.Exec("GET", resource)
					if err != nil {
						t.Fatal(err)
					}
					s, _ := v.(string)
					if r := must(testutil.ParseResource(s)); r.Expiry != 0 {
						t.Errorf("node %d is still taken: %+v", i, r)
					}
				}
			})
		})
	}
}
