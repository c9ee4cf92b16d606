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
	"github.com/lockkit/lockkit/internal/logbook"
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

// While processes with TTLs of 10s and 5s run together, each by its own default of WithMaxTTL, they exclude each other. The
// process with the shorter one is warned once, and a node that loses its memory does not vote for 10s. If the longer TTL is
// the newer one, the older process is warned.
func TestTwoTTLsRunTogether(t *testing.T) {
	type row struct{ before, after time.Duration }
	bubbles(t, 3, map[string]row{
		"a shorter one is rolled out": {10 * time.Second, 5 * time.Second},
		"a longer one is rolled out":  {5 * time.Second, 10 * time.Second},
	}, func(t *testing.T, w *world, c row) {
		var logs [2]logbook.Book
		old := w.process(TTL(c.before), WithLogger(logs[0].Logger()))
		w.everywhere(old, "another key")
		young := w.stranger(TTL(c.after), WithLogger(logs[1].Logger()))
		for _, pair := range [][2]*process{{old, young}, {young, old}} {
			lease := w.acquire(pair[0], "k")
			_, err := pair[1].TryAcquire(t.Context(), "k")
			wantErr(t, err, ErrHeld)
			w.release(lease)
		}

		const warning = "a process uses, or has used, a longer max TTL"
		shorter, longer := 0, 1
		if c.after < c.before {
			shorter, longer = 1, 0
		}
		synctest.Wait()
		logs[shorter].Want(t, 1, warning, "longest=10s", "own=5s")
		logs[longer].Want(t, 0, warning)

		w.nodes[0].Flush()
		w.nodes[1].Flush()
		err := []*process{old, young}[shorter].Ready(t.Context())
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "quarantined for another 10s")
	})
}

// A node whose memory is younger than a max TTL that is rolled out stops voting until it is as old as that. Leases go on.
func TestLongerMaxTTLSoonAfterARestart(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		p := w.process()
		for _, n := range w.nodes {
			n.RestartEmpty()
		}
		wantErr(t, p.Ready(t.Context()), ErrUnavailable) // their memory begins
		time.Sleep(20 * time.Second)
		succeeds(t, p.Ready(t.Context()))

		lease := w.acquire(p, "held")
		raised := w.stranger(WithMaxTTL(time.Minute))
		err := raised.Ready(t.Context())
		wantErr(t, err, ErrUnavailable)
		wantInError(t, err, "quarantined for another 40s")
		time.Sleep(40 * time.Second)
		wantValid(t, lease)
		for _, either := range []*process{p, raised} {
			w.release(w.acquire(either, "k"))
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
