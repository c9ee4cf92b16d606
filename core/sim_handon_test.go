package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSimulationOfHandOns has the calls of few processes come, hold a key, hand it on, give up, and release it twice,
// over links that lose and delay what they carry: at no time do two of them trust their leases, tokens grow, and no
// turn, lease or wait is left.
func TestSimulationOfHandOns(t *testing.T) {
	for seed := range uint64(*simSeeds+99) / 100 { // each takes as long as a hundred of the other simulation
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 77))
			bubble(t, []int{1, 2, 3, 3, 5}[r.IntN(5)], func(t *testing.T, w *world) { handOnUnderFaults(t, w, r) })
		})
	}
}

func handOnUnderFaults(t *testing.T, w *world, r *rand.Rand) {
	var mu sync.Mutex
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(n)
	}
	var calm, polls atomic.Bool
	polls.Store(r.IntN(4) == 0)
	var procs []*process
	for range 1 + r.IntN(3) {
		p := w.process(TTL(4 * time.Second))
		for i, k := range p.links {
			if polls.Load() {
				p.e.nodes[i].unqueued.Store(true)
			}
			k.decide(func(*script, []any) fate {
				f := fate{delay: time.Duration(draw(500)) * time.Microsecond, replyDelay: time.Duration(draw(500)) * time.Microsecond}
				if calm.Load() {
					return f
				}
				switch draw(40) {
				case 0:
					f.lose = true
				case 1:
					f.loseReply = true
				case 2:
					f.twice, f.delay = true, time.Duration(draw(50))*time.Millisecond
				case 3:
					f.delay = time.Duration(draw(300)) * time.Millisecond
				case 4:
					f.replyDelay = time.Duration(draw(300)) * time.Millisecond
				}
				return f
			})
		}
		procs = append(procs, p)
	}
	over := make(chan struct{})
	var all sync.WaitGroup
	var history sync.Mutex
	var holder *Lease
	var greatest uint64
	grants := 0
	for _, p := range procs {
		short, err := p.With(MaxWait(30*time.Millisecond), TTL(3500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		min, err := p.With(MinHold(20 * time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		fixed, err := p.With(FixedLease(true), Linger(Forever))
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			all.Go(func() {
				for !isClosed(over) {
					ctx, cancelIt := context.WithCancel(context.Background())
					cancel := func() { cancelIt() }
					l := []*Locker{p.Locker, p.Locker, short, min, fixed}[draw(5)]
					acquire := l.Acquire
					if draw(6) == 0 {
						acquire = l.TryAcquire
					}
					if draw(5) == 0 {
						time.AfterFunc(time.Duration(draw(60))*time.Millisecond, cancel)
					}
					lease, err := acquire(ctx, "k")
					if err != nil {
						cancel()
						time.Sleep(time.Duration(draw(5)) * time.Millisecond)
						continue
					}
					history.Lock()
					if holder != nil && holder.Context().Err() == nil && lease.Context().Err() == nil {
						t.Error("two holders")
					}
					if lease.FencingToken() <= greatest && lease.Context().Err() == nil {
						t.Errorf("token %d after %d", lease.FencingToken(), greatest)
					}
					greatest = max(greatest, lease.FencingToken())
					holder = lease
					grants++
					history.Unlock()
					time.Sleep(time.Duration(draw(10)) * time.Millisecond)
					switch die := draw(30); {
					case die == 0 && !calm.Load(): // dies
						if l != fixed {
							cancel()
						}
						continue
					case die < 4:
						go lease.Release(ctx)
						lease.Release(ctx)
					case die < 8:
						go lease.Release(ctx)
						time.Sleep(time.Duration(draw(3)) * time.Millisecond)
						lease.Release(ctx)
					default:
						lease.Release(ctx)
					}
					cancel()
				}
			})
		}
	}
	time.Sleep(3 * time.Second)
	calm.Store(true)
	time.Sleep(5 * time.Second) // longer than a lease lasts
	history.Lock()
	before := grants
	history.Unlock()
	time.Sleep(time.Second)
	history.Lock()
	if grants-before < 20 {
		t.Errorf("%d grants in 1s of peace", grants-before)
	}
	t.Logf("%d nodes, %d processes, polls %v: %d grants, %d of them in 1s of peace", len(w.nodes), len(procs), polls.Load(), grants, grants-before)
	history.Unlock()
	close(over)
	all.Wait()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	for i, p := range procs {
		p.e.lines.mu.Lock()
		if n := len(p.e.lines.m); n > 0 {
			t.Errorf("process %d: %d turns are left: %+v", i, n, p.e.lines.m)
		}
		p.e.lines.mu.Unlock()
		p.e.waits.mu.Lock()
		if n := len(p.e.waits.byName); n > 0 {
			t.Errorf("process %d: %d waits are left", i, n)
		}
		p.e.waits.mu.Unlock()
		p.e.mu.Lock()
		if n := len(p.e.leases); n > 0 {
			t.Errorf("process %d: %d leases are left", i, n)
		}
		p.e.mu.Unlock()
	}
	for i, n := range w.nodes {
		if q := w.queue(procs[0], i, "k"); len(q) > 0 {
			ms, _ := n.Exec("PTTL", procs[0].e.keys.tags[0]+"w:k")
			t.Logf("node %d has %d in its queue, for %v", i, len(q), ms)
		}
	}
}
