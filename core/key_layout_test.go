package core

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// A script refuses a value of unknown layout. It must not take the key for free, because the value may be a lease.
func TestOtherLayoutsAreRefused(t *testing.T) {
	bubbles(t, 1, map[string]func(n *testutil.Node, resource string) (any, error){
		"a hash, as it once was": func(n *testutil.Node, resource string) (any, error) {
			return n.Exec("HSET", resource, "e", "0", "i", "another", "f", "7")
		},
		"the string that it once was": func(n *testutil.Node, resource string) (any, error) {
			return n.Exec("SET", resource, "\x01"+strings.Repeat("\x00", 32)+"\x07another\x00\x64"+strings.Repeat("c", 100))
		},
		"the layout before this one": func(n *testutil.Node, resource string) (any, error) {
			return n.Exec("SET", resource, "\x02"+testutil.Resource{Counter: 7, Before: -1}.String()[1:])
		},
		"the layout before this one, while somebody may wait": func(n *testutil.Node, resource string) (any, error) {
			return n.Exec("SET", resource, "\x03"+testutil.Resource{Counter: 7, Before: -1, MayHaveWaiter: true}.String()[1:])
		},
		"a mark from the future": func(n *testutil.Node, resource string) (any, error) {
			return n.Exec("SET", resource, "\x06"+testutil.Resource{Before: -1}.String()[1:])
		},
		"another length": func(n *testutil.Node, resource string) (any, error) {
			return n.Exec("SET", resource, "\x05"+testutil.Resource{Before: -1}.String()[1:])
		},
		"text":               func(n *testutil.Node, resource string) (any, error) { return n.Exec("SET", resource, "mine") },
		"cut short":          func(n *testutil.Node, resource string) (any, error) { return n.Exec("SET", resource, "\x04\x00\x00") },
		"nothing but a mark": func(n *testutil.Node, resource string) (any, error) { return n.Exec("SET", resource, "\x04") },
		"an empty string":    func(n *testutil.Node, resource string) (any, error) { return n.Exec("SET", resource, "") },
	}, func(t *testing.T, w *world, write func(n *testutil.Node, resource string) (any, error)) {
		p := w.process()
		resource := p.e.Keys.Resource("k")
		lease := p.newLease(t.Context(), "k")
		lease.attempt.token = 8
		must(write(w.nodes[0], resource))

		before := w.dump(t, resource)
		soon := wire.NodeTimeOf(time.Now().Add(time.Hour))
		for _, v := range []quorum.Vote{askOf(lease.attempt.newAcquireRound(false), 0), lease.renewAlone(soon), askOf(lease.attempt.newReleaseRound(0), 0), askOf(lease.attempt.newCompleteRound(&wire.Record{Retention: time.Hour}, 8, true), 0)} {
			if v.Verdict != wire.Failed {
				t.Errorf("%+v", v)
			}
		}

		if after := w.dump(t, resource); after != before {
			t.Errorf("%q became %q", before, after)
		}
	})
}

// Every key has the number of its layout from its first grant on. Versions with other layouts refuse it, because they
// know only numbers up to 3.
func TestKeysBearTheNumberOfTheirLayout(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p, other := w.process(), w.process()
		resource := p.e.Keys.Resource("k")
		want := func(when string, layout byte) {
			t.Helper()
			if got := w.dump(t, resource)[0]; got != layout {
				t.Errorf("%s: layout %d, want %d", when, got, layout)
			}
		}

		lease := w.acquire(p, "k")
		want("held", 4)
		waiting, stop := context.WithCancel(t.Context())
		go other.Acquire(waiting, "k")
		synctest.Wait()
		want("held, and another waits", 5)

		stop()
		time.Sleep(time.Second)
		w.release(lease)
		want("released", 4)
		succeeds(t, w.acquire(p, "k").Complete(t.Context(), nil))
		want("completed", 4)
	})
}

// A version with another layout starts under another prefix, on nodes that are in use. It is granted nothing until the
// last leases of the version before are over, and its tokens are greater. docs/deploy.md says so.
func TestAnotherPrefixOnNodesInUse(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		before := w.process()
		died := w.acquire(before, "k")
		for _, k := range before.links { // the process dies
			k.Set(coretest.Fate{Refuse: true})
		}
		p := w.stranger(WithKeyPrefix("lockkit2:"))
		start := time.Now()
		lease := must(p.Acquire(t.Context(), "k"))
		if died.Context().Err() == nil || time.Since(start) < p.p.MaxTTL {
			t.Errorf("granted after %v, max TTL %v", time.Since(start), p.p.MaxTTL)
		}
		if lease.FencingToken() <= died.FencingToken() {
			t.Errorf("token %d after %d", lease.FencingToken(), died.FencingToken())
		}
	})
}

// dump returns the value that node 0 stores under a Redis key.
func (w *world) dump(t *testing.T, key string) string {
	t.Helper()
	v, err := w.nodes[0].Exec("GET", key)
	if err == nil {
		return v.(string)
	}
	all := must(w.nodes[0].Exec("HGETALL", key))
	var text strings.Builder
	for _, field := range all.([]any) {
		text.WriteString(field.(string) + " ")
	}
	return text.String()
}
