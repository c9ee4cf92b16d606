package core

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An attempt that failed, or a lease that was released, may stay on a node that did not get the release. It blocks the
// key only until its process asks the node again, whatever its TTL is.
func TestLeftoverIsReleasedWhenANodeNamesIt(t *testing.T) {
	const ttl = time.Hour
	bubbles(t, 3, map[string]func(w *world, p *process){
		"failed attempt": func(w *world, p *process) {
			p.links[0].Set(coretest.Fate{Refuse: true})
			p.links[2].Decide(func(op wire.Op, _ coretest.Sent) coretest.Fate {
				return coretest.Fate{LoseReply: op == wire.OpAcquire, Lose: op == wire.OpRelease}
			})
			_, err := p.TryAcquire(w.t.Context(), "k")
			wantErr(w.t, err, ErrUnavailable)
		},
		"request sent twice": func(w *world, p *process) { // the reply to the first copy is lost, and the second is too late
			p.links[0].Set(coretest.Fate{Refuse: true})
			p.links[2].Next(coretest.Fate{Twice: true, Delay: 150 * time.Millisecond}, wire.OpAcquire)
			_, err := p.TryAcquire(w.t.Context(), "k")
			wantErr(w.t, err, ErrUnavailable)
		},
		"released lease": func(w *world, p *process) {
			lease := w.acquire(p, "k")
			synctest.Wait()
			p.links[2].Set(coretest.Fate{Lose: true}, wire.OpRelease)
			w.release(lease)
		},
	}, func(t *testing.T, w *world, leave func(*world, *process)) {
		p := w.process(TTL(ttl), WithClockWindow(100*time.Millisecond))
		leave(w, p)
		time.Sleep(time.Minute) // no release is sent any more
		p.mend()

		p.links[0].Set(coretest.Fate{Refuse: true}) // node 2 is needed
		start := time.Now()
		lease, err := p.Acquire(t.Context(), "k", MaxWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		wantBetween(t, "the key was granted after", time.Since(start), 0, 2*time.Second)
		w.release(lease)
	})
}

// The number of attempts that a process remembers is limited.
func TestLeftoversAreBounded(t *testing.T) {
	var l leftovers
	k := wire.NewKeyspace("lockkit", 1, true)
	first := &attempt{lock: k.Lock("k", k.Resource("k"), 0)}
	l.add(first)
	l.add(first)
	for n := range uint64(maxLeftovers) {
		if len(l.names) != len(l.byName) || len(l.names) > maxLeftovers {
			t.Fatalf("%d names of %d attempts", len(l.names), len(l.byName))
		}
		last := &attempt{lock: k.Lock("k", k.Resource("k"), n+1)}
		l.add(last)
		if l.named(last.lock.Waiter().Name) != last {
			t.Fatalf("attempt %d is not remembered", n)
		}
	}
	if l.named(first.lock.Waiter().Name) != nil {
		t.Error("the oldest attempt is still remembered")
	}
}
