package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// This file tests nodes that hang, are down or lose their memory. Some of the cases are bugs of other lock libraries.

// A hung node costs no time if a quorum answers. With redsync and the default options of the client, it costs 5s for
// each lock, extension and unlock.
func TestHungNodeCostsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		lease := w.acquire(p, "warm") // makes connections
		w.release(lease)
		w.nodes[1].Hang()
		start := time.Now()
		lease = w.acquire(p, "k")
		w.release(lease)
		if d := time.Since(start); d > 0 {
			t.Errorf("lock and unlock took %v although a quorum answered at once", d)
		}
		lease = w.acquire(p, "k")
		time.Sleep(10 * time.Minute)
		if err := lease.Context().Err(); err != nil {
			t.Errorf("renewals failed: %v", context.Cause(lease.Context()))
		}
		w.release(lease)
	})
}

// Without a quorum, each operation takes at most the node timeout, although clients with default options wait for
// seconds.
func TestHungQuorumIsBoundedByTheNodeTimeout(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := &process{}
		var err error
		p.Locker, err = New(testutil.Clients(w.nodes), quietly)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(t.Context())
		succeeds(t, p.Provision(t.Context()))
		lease := w.acquire(p, "held")
		for _, n := range w.nodes {
			n.Hang()
		}

		start := time.Now()
		_, err = p.TryAcquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		wantErr(t, err, node.ErrNoAnswer)
		if d := time.Since(start); d > p.p.nodeTimeout {
			t.Errorf("TryAcquire took %v, the node timeout is %v", d, p.p.nodeTimeout)
		}

		start = time.Now()
		wantErr(t, lease.Release(t.Context()), ErrUnavailable)
		if d := time.Since(start); d > p.p.nodeTimeout {
			t.Errorf("Release took %v, the node timeout is %v", d, p.p.nodeTimeout)
		}
		for _, n := range w.nodes {
			n.Up()
		}
	})
}

// A waiter gives up when no quorum has been reachable for a TTL, as a holder would lose its lease. rueidislock waits
// forever while Redis is down.
func TestAcquireGivesUpOnNodesOutOfReach(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, n := range w.nodes {
			n.Down()
		}
		start := time.Now()
		_, err := p.Acquire(t.Context(), "k")
		wantErr(t, err, ErrUnavailable)
		if d := time.Since(start); d < p.p.ttl || d > p.p.ttl+2*p.p.nodeTimeout {
			t.Errorf("gave up after %v, the TTL is %v", d, p.p.ttl)
		}
		wantCauses(t, err, 2)
	})
}

// wantCauses checks that an error has the cause for at least this many nodes that are out of reach.
func wantCauses(t *testing.T, err error, least int) {
	t.Helper()
	op, _ := errors.AsType[*OpError](err)
	causes := 0
	for _, n := range op.Nodes {
		if n.Err != nil {
			causes++
		}
	}
	if causes < least {
		t.Errorf("the error does not say why the quorum is out of reach: %v", err)
	}
}

func TestAcquireOutlastsABlip(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, n := range w.nodes {
			n.Down()
			time.AfterFunc(3*time.Second, n.Up)
		}
		w.release(w.await(p, "k"))
	})
}

// A dead node does not delay the renewal of leases. With Redisson, one bad node delays the renewal of all leases.
func TestManyLeasesWithADeadNode(t *testing.T) {
	race.SkipSweep(t)
	bubbles(t, 3, map[string]func(*testutil.Node){
		"down": (*testutil.Node).Down, "hung": (*testutil.Node).Hang,
	}, func(t *testing.T, w *world, fault func(*testutil.Node)) {
		p := w.process()
		var leases []*Lease
		for i := range 500 {
			leases = append(leases, w.acquire(p, fmt.Sprint("k", i)))
		}
		fault(w.nodes[2])
		half := (p.p.validity - p.p.margin) / 2
		for range 20 { // three renewals
			time.Sleep(500 * time.Millisecond)
			for _, lease := range leases {
				if left := lease.remaining(); left < half {
					t.Fatalf("%v left, half the margin is %v", left, half)
				}
			}
		}
		w.nodes[2].Up()
	})
}

// A lease survives a rolling restart. With redsync, the quorum erodes until the lock is lost.
func TestRollingRestart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		holder, other := w.process(), w.process()
		lease := w.acquire(holder, "k")
		for _, n := range w.nodes {
			n.RestartEmpty()
			for range 100 {
				if _, err := other.TryAcquire(t.Context(), "k"); err == nil {
					t.Fatal("a second holder")
				}
				time.Sleep(2 * holder.p.renewEvery / 100)
			}
		}
		time.Sleep(time.Minute)
		wantValid(t, lease)
		w.release(lease)
	})
}

// Tokens grow although single nodes lose their memory in between, because every token is written back to a quorum.
func TestTokensGrowOverNodeLosses(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process(TTL(time.Second), WithClockWindow(100*time.Millisecond))
		var last, grants uint64
		for i := range 300 {
			for j, k := range p.links {
				k.Set(coretest.Fate{Refuse: i%3 == j && i%2 == 0})
			}
			if i%30 == 17 {
				w.nodes[i/30%3].RestartEmpty()
			}

			lease, err := p.Acquire(t.Context(), "k")
			if errors.Is(err, ErrUnavailable) { // one node was emptied and one refuses, for longer than a TTL
				continue
			}
			if err != nil {
				t.Fatal(err)
			}

			grants++
			if lease.FencingToken() <= last {
				t.Fatalf("token %d after %d", lease.FencingToken(), last)
			}
			last = lease.FencingToken()
			lease.Release(t.Context())
		}
		if grants < 250 {
			t.Errorf("only %d grants", grants)
		}
	})
}

// Calls that begin at the same moment are all served if the only node has been well for long, also if nothing was sent to it
// since its outage.
func TestCallsAfterAnOutageAndAPause(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.process(WithRestartGuard(false)) // with the guard, the node is touched in the pause
		w.nodes[0].Down()
		for range 5 {
			if _, err := p.TryAcquire(t.Context(), "k"); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("TryAcquire during the outage: %v", err)
			}
		}
		time.Sleep(time.Minute) // no release of these attempts is sent any more
		w.nodes[0].Up()
		time.Sleep(time.Minute)
		p.links[0].Set(coretest.Fate{Delay: 10 * time.Millisecond}) // all calls begin before the first answer

		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() {
				lease, err := p.TryAcquire(t.Context(), fmt.Sprint(i))
				if err != nil {
					t.Errorf("TryAcquire: %v", err)
					return
				}
				w.release(lease)
			})
		}
		calls.Wait()
	})
}
