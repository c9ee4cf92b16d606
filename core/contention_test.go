package core

import (
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/testutil"
)

// These tests take bugs of other lock libraries with contenders that split the votes, and check what must happen
// instead.

// contend makes all processes try for key at once, and returns the leases that they got. The others must get ErrHeld.
func contend(t *testing.T, key string, all ...*process) (leases []*Lease) {
	t.Helper()
	var tries []<-chan tryResult
	for _, p := range all {
		tries = append(tries, trying(p.Locker, t.Context(), key))
	}
	for _, try := range tries {
		switch got := testutil.Receive(t, try); {
		case got.err == nil:
			leases = append(leases, got.lease)
		case !errors.Is(got.err, ErrHeld):
			t.Error(got.err)
		}
	}
	return leases
}

// With node-redlock, contenders that split the votes of an even number of nodes never come to an end. Here one of them
// gets the key.
func TestSplitVotesSettle(t *testing.T) {
	for _, n := range []int{2, 4} {
		bubbleNamed(t, fmt.Sprint(n, " nodes"), n, func(t *testing.T, w *world) {
			a, b := w.process(), w.process()
			for i := range n { // each process is first at half of the nodes
				slow := []*process{a, b}[i%2]
				slow.links[i].Next(coretest.Fate{Delay: 10 * time.Millisecond}, wire.OpAcquire)
			}
			start := time.Now()
			holders := contend(t, "k", a, b)
			if d := time.Since(start); d > a.p.nodeTimeout {
				t.Errorf("settled after %v", d)
			}
			if len(holders) != 1 { // otherwise callers that do not wait could leave a free key unused
				t.Fatalf("%d have the key, want 1", len(holders))
			}
			w.release(holders[0])
			w.release(w.acquire(b, "k"))
		})
	}
}

// There are as many contenders as nodes, and each contender has one vote. A quorum refuses each of them, and yet one of
// them must get the free key.
func TestThreeContendersSettle(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		var all []*process
		for i := range 3 {
			p := w.process()
			for n := range 3 { // each process is first at another node
				p.links[n].Next(coretest.Fate{Delay: time.Duration(1+(n-i+3)%3) * time.Millisecond}, wire.OpAcquire)
			}
			all = append(all, p)
		}
		if holders := contend(t, "k", all...); len(holders) != 1 {
			t.Errorf("%d have the key, want 1", len(holders))
		}
	})
}

// With node-redlock, an attempt that won a minority blocks the next attempt of its own caller. Here it must not.
func TestOwnTracesDoNotBlock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		p.links[1].Sequence(wire.OpAcquire, coretest.Fate{Refuse: true}, coretest.Fate{})
		p.links[2].Set(coretest.Fate{Refuse: true})
		w.release(w.await(p, "k"))
	})
}

// Metrics and logs show verdicts by name. Each verdict has a name, and no two have the same.
func TestVerdictNames(t *testing.T) {
	t.Parallel()
	seen := map[string]Verdict{}
	for v := VerdictFailed; v <= VerdictCircuitOpen; v++ {
		name := v.String()
		if other, twice := seen[name]; twice || !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(name) || name == "unknown" {
			t.Errorf("verdict %d is called %q, as is %d", v, name, other)
		}
		seen[name] = v
	}
	if got := (VerdictCircuitOpen + 1).String(); got != "unknown" {
		t.Errorf("a verdict that is none is called %q", got)
	}
}
