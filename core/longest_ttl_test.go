package core

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// Votes of nodes that have forgotten the longest lease do not count once one node reports it. The process asks again.
func TestGrantsBeforeTheLongestLeaseWasHeardOf(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		short := w.process(TTL(5*time.Second), WithClockWindow(100*time.Millisecond)).asksAllFirst()
		long := w.process(TTL(5*time.Second), WithClockWindow(100*time.Millisecond), WithMaxTTL(20*time.Second))
		w.acquire(long, "another key")
		synctest.Wait() // the lease is on all nodes

		var asked atomic.Int64
		short.links[0].Decide(func(s wire.Op, q coretest.Sent) coretest.Fate {
			if s == wire.OpAcquire {
				asked.Add(1)
			}
			return coretest.Fate{}
		})

		lease := w.acquire(short, "k")
		synctest.Wait()
		if asked := asked.Load(); asked != 2 {
			t.Errorf("asked %d times, want one time more than the longest lease was heard of", asked)
		}

		w.release(lease)
		asked.Store(0)
		w.everywhere(short, "k")
		if asked := asked.Load(); asked != 1 {
			t.Errorf("asked %d times, with the longest lease known", asked)
		}
	})
}

// Provision passes on the longest lease that its process has learned of.
func TestProvisionTellsTheLongestLease(t *testing.T) {
	bubble(t, 1, func(t *testing.T, w *world) {
		p := w.stranger(WithRestartGuard(true))
		synctest.Wait() // the guard record names p's own max TTL
		p.e.LearnMaxTTL(20 * time.Second)
		succeeds(t, p.Provision(t.Context()))
		if g := must(w.nodes[0].Exec("GET", p.e.Keys.Guard(0))).(string); wire.LongestOf(g) != 20*time.Second {
			t.Errorf("the guard record is %q", g)
		}
	})
}

// A batch names the longest lease that is known when it leaves. A request that was made before gains nothing by this,
// because other nodes of its round may have been asked without it.
func TestBatchThatBringsTheLongestLeaseAlong(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		short := w.process(TTL(5*time.Second), WithClockWindow(100*time.Millisecond))
		long := w.process(TTL(20*time.Second), WithClockWindow(100*time.Millisecond), unrenewed)
		for _, k := range short.links[1:] {
			k.Set(coretest.Fate{Lose: true})
		}

		w.everywhere(long, "another") // all nodes know of 20s
		long.links[2].Set(coretest.Fate{Lose: true}, wire.OpAcquire)
		held := w.acquire(long, "k") // on nodes 0 and 1
		long.set(coretest.Fate{Lose: true})

		w.nodes[0].RestartEmpty()
		// A quarantine of 5s begins, because short knows of no longer lease.
		short.e.Buckets[0].Touch(quorum.Set(0).With(0))
		time.Sleep(7 * time.Second)

		short.mend()
		time.Sleep(2 * time.Second) // no request is under way that could still fail
		for i, k := range short.links[1:] {
			short.e.Nodes[1+i].Connections = 1
			k.Set(coretest.Fate{Delay: time.Millisecond})
		}
		if short.e.Head.Load().MaxTTL != short.p.MaxTTL {
			t.Fatal("the schedule is off: short has heard of it")
		}

		var all sync.WaitGroup
		all.Go(func() { short.TryAcquire(t.Context(), "first") }) // its reply reports the longest lease
		synctest.Wait()
		all.Go(func() { short.TryAcquire(t.Context(), "second") }) // is sent together with the request for k

		lease, err := short.TryAcquire(t.Context(), "k")
		if err == nil {
			wantNotBoth(t, lease, held)
		}
		all.Wait()
	})
}
