package core

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/sim"
)

// TestSimulationOfHandOns makes the calls of a few processes hold a key, hand it on, give up, and release it twice,
// over links that lose and delay messages. It checks that at no time two calls trust their leases, that tokens grow,
// that keys are granted once the faults are over, and that no turn, lease or waiter is left in the processes.
func TestSimulationOfHandOns(t *testing.T) {
	sim.Seeds(t, 100, nil, func(t *testing.T, seed uint64, _ sim.Counts) {
		r := rand.New(rand.NewPCG(seed, 77))
		bubbleNow(t, []int{1, 2, 3, 3, 5}[r.IntN(5)], func(t *testing.T, w *world) {
			sim.ByModel(seed, w.nodes...)
			handOnUnderFaults(t, w, r)
		})
	})
}

func handOnUnderFaults(t *testing.T, w *world, r *rand.Rand) {
	s := &handOnSim{world: w, r: r, over: make(chan struct{})}
	for range 1 + r.IntN(3) {
		s.procs = append(s.procs, s.start())
	}
	var all sync.WaitGroup
	for _, p := range s.procs {
		for _, call := range s.callers(p) {
			all.Go(call)
		}
	}
	time.Sleep(3 * time.Second)
	s.calm.Store(true)
	time.Sleep(5 * time.Second) // longer than a lease lasts

	before := s.granted()
	time.Sleep(time.Second)
	grants := s.granted()
	if grants-before < 20 {
		t.Errorf("%d grants in 1s of peace", grants-before)
	}
	t.Logf("%d nodes, %d processes: %d grants, %d of them in 1s of peace", len(w.nodes), len(s.procs), grants, grants-before)

	close(s.over)
	all.Wait()
	s.pass(10 * time.Second)
	for _, p := range s.procs {
		p.wantNothingLeft(t)
	}
	for i, n := range w.nodes {
		if q := w.queue(s.procs[0], i, "k"); len(q) > 0 {
			ms, _ := n.Exec("PTTL", s.procs[0].e.Keys.Waiters("k"))
			t.Logf("node %d has %d in its queue, for %v", i, len(q), ms)
		}
	}
}

// A handOnSim is one run of the simulation.
type handOnSim struct {
	*world
	procs []*process
	calm  atomic.Bool   // no more faults happen
	over  chan struct{} // closed when no more calls must begin

	mu       sync.Mutex
	r        *rand.Rand
	holder   *Lease // the latest lease
	greatest uint64 // the greatest fencing token
	grants   int
}

func (s *handOnSim) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.IntN(n)
}

func (s *handOnSim) drawTime(n int, unit time.Duration) time.Duration {
	return time.Duration(s.draw(n)) * unit
}

func (s *handOnSim) granted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants
}

// start makes a process on links with faults.
func (s *handOnSim) start() *process {
	p := s.process(TTL(4 * time.Second))
	for _, k := range p.links {
		k.Decide(func(wire.Op, coretest.Sent) coretest.Fate { return s.fate() })
	}
	return p
}

// fate returns the fate of the next request.
func (s *handOnSim) fate() coretest.Fate {
	f := coretest.Fate{Delay: s.drawTime(500, time.Microsecond), ReplyDelay: s.drawTime(500, time.Microsecond)}
	if s.calm.Load() {
		return f
	}
	switch s.draw(40) {
	case 0:
		f.Lose = true
	case 1:
		f.LoseReply = true
	case 2:
		f.Twice, f.Delay = true, s.drawTime(50, time.Millisecond)
	case 3:
		f.Delay = s.drawTime(300, time.Millisecond)
	case 4:
		f.ReplyDelay = s.drawTime(300, time.Millisecond)
	}
	return f
}

// callers returns four callers of a process. They call until s.over is closed, each time with one of several Lockers.
func (s *handOnSim) callers(p *process) []func() {
	fixed := must(p.With(unrenewed, Detached(true)))
	lockers := []*Locker{
		p.Locker, p.Locker, // the ordinary one is drawn twice as often
		must(p.With(MaxWait(30*time.Millisecond), TTL(3500*time.Millisecond))),
		fixed,
	}
	return slices.Repeat([]func(){func() {
		for !isClosed(s.over) {
			l := lockers[s.draw(len(lockers))]
			s.call(l, l == fixed)
		}
	}}, 4)
}

// call acquires the key once, holds it, and releases it in one of several ways, or dies.
func (s *handOnSim) call(l *Locker, fixed bool) {
	ctx, end := context.WithCancel(context.Background())
	cancel := func() { end() } // hides from go vet that a caller that dies does not call it
	acquire := l.Acquire
	if s.draw(6) == 0 {
		acquire = l.TryAcquire
	}
	if s.draw(5) == 0 {
		time.AfterFunc(s.drawTime(60, time.Millisecond), cancel)
	}
	lease, err := acquire(ctx, "k")
	if err != nil {
		cancel()
		time.Sleep(s.drawTime(5, time.Millisecond))
		return
	}

	s.note(lease)
	time.Sleep(s.drawTime(10, time.Millisecond))

	switch die := s.draw(30); {
	case die == 0 && !s.calm.Load(): // the caller dies
		if fixed {
			return // its context does not end, either
		}
	case die < 4:
		go lease.Release(ctx)
		lease.Release(ctx)
	case die < 11:
		lease.Release(ctx, Cooldown(20*time.Millisecond))
	case die < 15:
		go lease.Release(ctx)
		time.Sleep(s.drawTime(3, time.Millisecond))
		lease.Release(ctx)
	default:
		lease.Release(ctx)
	}
	cancel()
}

// note records a lease, and checks it against the one before.
func (s *handOnSim) note(lease *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil && s.holder.Context().Err() == nil && lease.Context().Err() == nil {
		s.t.Error("two holders")
	}
	if lease.FencingToken() <= s.greatest && lease.Context().Err() == nil {
		s.t.Errorf("token %d after %d", lease.FencingToken(), s.greatest)
	}
	s.greatest = max(s.greatest, lease.FencingToken())
	s.holder = lease
	s.grants++
}
