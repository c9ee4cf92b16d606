package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/sim"
)

// TestSimulationOfSets makes the callers of a few processes acquire sets of keys and single keys, all of them among the
// same few, under faults drawn from a seed: single leases of a set are lost, callers die, processes are cut off, nodes
// are down, hung, slow, or restarted without their data, and messages are lost and delayed.
//
// It checks that no two callers trust a lease on the same key, and that tokens grow. When the last fault has ended, every
// caller is served soon, so none waits in a circle; and at the end nothing is left taken.
func TestSimulationOfSets(t *testing.T) {
	reached := []string{"sets", "single keys", "tries refused", "leases lost", "callers dead", "processes cut off", "nodes empty", "losses told"}
	sim.Seeds(t, 60, reached, func(t *testing.T, seed uint64, counts sim.Counts) {
		r := rand.New(rand.NewPCG(seed, 60))
		bubbleNow(t, []int{1, 2, 3, 3, 5}[r.IntN(5)], func(t *testing.T, w *world) {
			sim.ByModel(seed, w.nodes...)
			s := &setSim{world: w, r: r, counts: counts, over: make(chan struct{}), holders: map[string]setHold{}}
			s.run()
		})
	})
}

const (
	setTTL    = 4 * time.Second
	setFaults = 6 * time.Second // how long faults happen
	// setCalms is the time after the last fault within which all its effects are over: leases of the dead, and
	// quarantines.
	setCalms = 3 * setTTL
	// setPeace is the time in which every caller is served, after that.
	setPeace = 6 * time.Second
)

// A setSim is one run of the simulation.
type setSim struct {
	*world
	over chan struct{} // closed when no more calls must begin

	mu      sync.Mutex
	r       *rand.Rand
	counts  sim.Counts
	calm    bool // no more faults happen
	holders map[string]setHold
	held    []*Leases // sets that were granted, of which single leases may be lost
	served  []int     // by caller
}

// A setHold is the latest hold of a key.
type setHold struct {
	ctx   context.Context
	token uint64
}

func (s *setSim) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.IntN(n)
}

func (s *setSim) drawTime(most time.Duration) time.Duration { return time.Duration(s.draw(int(most))) }

func (s *setSim) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

func (s *setSim) isCalm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}

func (s *setSim) run() {
	var procs []*process
	var callers sync.WaitGroup
	for range 2 + s.draw(3) {
		p := s.start()
		procs = append(procs, p)
		for range 2 {
			i := len(s.served)
			s.served = append(s.served, 0)
			callers.Go(func() {
				for !isClosed(s.over) {
					s.call(p, i)
				}
			})
		}
	}

	s.trouble(procs)
	time.Sleep(setCalms)
	before := s.servedSoFar()
	time.Sleep(setPeace)
	after := s.servedSoFar()
	for i := range after {
		if after[i] == before[i] {
			s.t.Errorf("caller %d of %d was not served within %v: %v", i, len(after), setPeace, after)
		}
	}

	close(s.over)
	callers.Wait()
	s.pass(setCalms)
	for _, p := range procs {
		p.wantNothingLeft(s.t)
	}
	last, err := s.process(TTL(setTTL), WithRestartGuard(true)).TryAcquireAll(s.t.Context(), setKeys)
	if err != nil {
		s.t.Fatalf("not free again: %v", err)
	}
	last.Release(s.t.Context())
}

func (s *setSim) servedSoFar() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.served)
}

var setKeys = []string{"a", "b", "c", "d", "e"}

// start makes a process on links with faults.
func (s *setSim) start() *process {
	p := s.process(TTL(setTTL), WithRestartGuard(true))
	lossy := s.draw(2) == 0
	for _, k := range p.links {
		k.Decide(func(wire.Op, coretest.Sent) coretest.Fate {
			f := coretest.Fate{Delay: s.drawTime(500 * time.Microsecond), ReplyDelay: s.drawTime(500 * time.Microsecond)}
			if s.isCalm() || !lossy {
				return f
			}
			switch s.draw(60) {
			case 0:
				f.Lose = true
			case 1:
				f.LoseReply = true
			case 2:
				f.Twice, f.Delay = true, s.drawTime(50*time.Millisecond)
			case 3:
				f.ReplyDelay = s.drawTime(300 * time.Millisecond)
			}
			return f
		})
	}
	return p
}

// trouble causes faults for a while, and then ends all of them.
func (s *setSim) trouble(procs []*process) {
	var heal []func()
	for until := time.Now().Add(setFaults); time.Now().Before(until); {
		time.Sleep(s.drawTime(time.Second))
		n := s.nodes[s.draw(len(s.nodes))]
		switch s.draw(8) {
		case 0, 1, 2:
			s.loseOne()
		case 3:
			p := procs[s.draw(len(procs))]
			cut := true
			for _, k := range p.links {
				k.Set(coretest.Fate{Lose: true}, wire.OpRenew, wire.OpRelease)
			}
			s.count("processes cut off")
			time.AfterFunc(s.drawTime(setTTL), func() { s.heal(p, &cut) })
			heal = append(heal, func() { s.heal(p, &cut) })
		case 4:
			s.count("nodes empty")
			n.RestartEmpty()
		case 5:
			n.Down()
			time.Sleep(s.drawTime(time.Second))
			n.Up()
		case 6:
			n.Hang()
			time.Sleep(s.drawTime(time.Second))
			n.Up()
		case 7:
			n.Slow(s.drawTime(100 * time.Millisecond))
			time.Sleep(s.drawTime(time.Second))
			n.Up()
		}
	}

	for _, f := range heal {
		f()
	}
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
}

// heal ends the cut of a process.
func (s *setSim) heal(p *process, cut *bool) {
	s.mu.Lock()
	isCut := *cut
	*cut = false
	s.mu.Unlock()
	if isCut {
		p.set(coretest.Fate{}, wire.OpRenew, wire.OpRelease)
	}
}

// loseOne makes a process lose one lease of a set.
func (s *setSim) loseOne() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = slices.DeleteFunc(s.held, func(set *Leases) bool { return set.shared.Err() != nil })
	if len(s.held) == 0 {
		return
	}
	set := s.held[s.r.IntN(len(s.held))]
	set.leases[s.r.IntN(len(set.leases))].declareLost(LossTaken)
	s.counts["leases lost"]++
}

// call acquires a set of keys or a single key, holds what it gets, and releases it or dies.
func (s *setSim) call(p *process, caller int) {
	ctx, end := context.WithCancel(context.Background())
	cancel := func() { end() } // hides from go vet that a caller that dies does not call it
	if !s.isCalm() && s.draw(6) == 0 {
		time.AfterFunc(s.drawTime(time.Second), cancel)
	}

	var err error
	switch s.draw(4) {
	case 0:
		err = s.single(ctx, p, caller, setKeys[s.draw(len(setKeys))])
	case 1:
		err = p.DoAll(ctx, s.drawKeys(), func(ctx context.Context) error {
			s.work(ctx, p, caller)
			return nil
		})
	default:
		err = s.set(ctx, p, caller)
	}
	if err != nil {
		if errors.Is(err, ErrLost) {
			s.count("losses told")
		}
		time.Sleep(s.drawTime(5 * time.Millisecond))
	}

	cancel()
}

// drawKeys returns some keys in any order.
func (s *setSim) drawKeys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Clone(setKeys)
	s.r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys[:1+s.r.IntN(4)]
}

// single acquires a single key.
func (s *setSim) single(ctx context.Context, p *process, caller int, key string) error {
	lease, err := p.Acquire(ctx, key)
	if err != nil {
		return err
	}
	s.count("single keys")
	s.work(lease.Context(), p, caller)
	if s.dies() {
		return nil
	}
	return lease.Release(ctx)
}

// set acquires a set of keys.
func (s *setSim) set(ctx context.Context, p *process, caller int) error {
	acquire, tries := p.AcquireAll, s.draw(4) == 0
	if tries {
		acquire = p.TryAcquireAll
	}
	set, err := acquire(ctx, s.drawKeys())
	if err != nil {
		if tries && errors.Is(err, ErrHeld) {
			s.count("tries refused")
		}
		return err
	}

	s.count("sets")
	s.mu.Lock()
	s.held = append(s.held, set)
	s.mu.Unlock()
	s.work(set.Context(), p, caller)
	if s.dies() {
		return nil
	}
	return set.Release(ctx)
}

// dies reports whether the caller dies, so that it releases nothing and only its context ends.
func (s *setSim) dies() bool {
	dies := !s.isCalm() && s.draw(12) == 0
	if dies {
		s.count("callers dead")
	}
	return dies
}

// work notes the leases that ctx runs under, and holds them for a time.
func (s *setSim) work(ctx context.Context, p *process, caller int) {
	s.mu.Lock()
	for _, key := range setKeys {
		lease, held := p.Holding(ctx, key)
		if !held {
			continue
		}
		before := s.holders[key]
		if before.ctx != nil && before.ctx.Err() == nil && ctx.Err() == nil {
			s.t.Errorf("two hold %q", key)
		}
		if lease.FencingToken() <= before.token {
			s.t.Errorf("%q: token %d after %d", key, lease.FencingToken(), before.token)
		}
		s.holders[key] = setHold{ctx, lease.FencingToken()}
	}
	s.served[caller]++
	hold := time.Duration(s.r.Int64N(int64(20 * time.Millisecond)))
	if !s.calm && s.r.IntN(20) == 0 {
		hold = time.Duration(s.r.Int64N(int64(2 * setTTL)))
	}
	s.mu.Unlock()

	select {
	case <-ctx.Done():
	case <-time.After(hold):
	}
}
