package semaphore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/core/internal/slot"
	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// TestSimulation lets the replicas of a random service acquire permits for a few keys, beside holders of the plain locks
// and of sets of them. The number of permits differs between replicas, and changes. Replicas die, nodes fail and
// forget, slots are lost, and several come free at the same instant. The oracle is in sim_oracle_test.go.
func TestSimulation(t *testing.T) {
	sim.CollectLess(t)
	sim.Campaign{Draw: drawProgram, Run: simulate, MustReach: mustReach}.Test(t)
}

// drawProgram draws a service, callers, and faults.
func drawProgram(r *rand.Rand) sim.Program {
	p := sim.Program{Plan: map[string]int{"replicas": r.IntN(4), "nodes": 2 * r.IntN(2), "more": r.IntN(3)}}
	if r.IntN(3) == 0 {
		p.Plan["delay"], p.Plan["late"], p.Plan["lost"] = sim.Pick(r, 1, 3, 10), sim.Pick(r, 0, 20), sim.Pick(r, 0, 10, 30)
	}

	at := time.Duration(0)
	for range 40 + r.IntN(40) {
		at += sim.Between(r, time.Millisecond, sim.Pick(r, 100*time.Millisecond, time.Second))
		p.Steps = append(p.Steps, drawCall(r, at))
	}
	for range sim.Pick(r, 0, 0, 1, 3, 6) {
		p.Steps = append(p.Steps, drawBlow(r, time.Duration(r.Int64N(int64(at)))))
	}
	for range r.IntN(4) {
		p.Steps = append(p.Steps, sim.Step{At: time.Duration(r.Int64N(int64(at))), Do: "change k", Who: r.IntN(4), N: r.IntN(5)})
	}
	return p
}

// drawCall draws a caller. Most callers use the same key. Its parameters: "key" is the number of another key, and "without"
// the number of the key that a set does not have, counted from 1; "try" does not wait; "wait" is its MaxWait, and
// "leave" when its context is cancelled, in milliseconds; "together" releases at the next full second; "lose" loses the
// slot; "forget" does not release.
func drawCall(r *rand.Rand, at time.Duration) sim.Step {
	rarely := func(in, n int) int { return n * ((r.IntN(in) + 1) / in) }
	return sim.Step{
		At: at, Do: sim.Pick(r, "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "plain", "set"), Who: r.IntN(4),
		For: sim.Between(r, time.Millisecond, sim.Pick(r, 50*time.Millisecond, 500*time.Millisecond, 5*time.Second)),
		With: map[string]int{
			"try": rarely(5, 1), "wait": rarely(6, 1+r.IntN(2000)), "leave": rarely(8, 1+r.IntN(3000)), "together": rarely(3, 1),
			"lose": rarely(15, 1), "forget": rarely(20, 1), "key": rarely(5, 1+r.IntN(2)), "without": r.IntN(4),
		},
	}
}

// simKeys are the keys of the service. Of the keys of a set, some sort before the key that most callers use, some after it.
var simKeys = []string{key, "accounts", "mail"}

// keysOf returns the keys of a call.
func keysOf(step sim.Step) []string {
	if step.Do != "set" {
		return []string{simKeys[step.With["key"]]}
	}

	keys := slices.Clone(simKeys)
	if n := step.With["without"]; n > 0 {
		keys = slices.Delete(keys, n-1, n)
	}
	return keys
}

// drawBlow draws a fault of a node or of a replica.
func drawBlow(r *rand.Rand, at time.Duration) sim.Step {
	s := sim.Step{At: at, Who: r.IntN(4), For: sim.Between(r, 50*time.Millisecond, 8*time.Second)}
	s.Do = sim.Pick(r, "down", "hang", "slow", "restart", "restart empty", "flush", "drop replies", "kill", "kill", "close")
	switch s.Do {
	case "slow":
		s.N = sim.Pick(r, 20, 150, 600)
	case "drop replies":
		s.N, s.For = 1+r.IntN(3), 0
	}
	return s
}

// A replica is one process of the service.
type replica struct {
	*locktest.Locker
	name string
	k    int
	s    *Semaphore
	ctx  context.Context // ends when it dies
	die  context.CancelFunc
}

// A simulation is one run of a program.
type simulation struct {
	*sim.Trial
	nodes    []*testutil.Node
	operator *locktest.Locker
	replicas []*replica
	calls    sync.WaitGroup
	oracle   oracle
	calm     bool // the network has no more faults
}

func simulate(t *sim.Trial) {
	s := &simulation{Trial: t, nodes: testutil.NewNodes(t, 1+t.Is("nodes"))}
	sim.ByModel(t.Seed, s.nodes...)
	s.oracle.Trial = t
	s.operator = locktest.NewOn(t, s.nodes, core.TTL(simTTL), core.WithClockWindow(simTTL/10), core.WithRestartGuard(true))
	for i := range 1 + t.Is("replicas") {
		s.replicas = append(s.replicas, s.newReplica(i, 0, 3+(i*t.Is("more"))%3))
	}

	end := time.Second
	for _, step := range t.Steps {
		end = max(end, step.At)
	}
	t.Follow(end, s.step)

	sim.Heal(s.nodes)
	s.calm = true
	for _, p := range s.replicas {
		p.Link.OnRequest(nil)
	}
	s.calls.Wait()

	// The leases of dead replicas, and quarantines, are over.
	time.Sleep(simTTL + 30*time.Second)
	s.nothingIsTaken()
}

const simTTL = 3 * time.Second

// newReplica starts a replica, or its next generation.
func (s *simulation) newReplica(i, generation, k int) *replica {
	p := &replica{Locker: s.operator.Replica(), name: fmt.Sprintf("%d.%d", i, generation), k: k}
	p.s = must(New(p.Locker.Locker, k))
	p.ctx, p.die = context.WithCancel(context.Background())
	if !s.calm {
		s.Network(p.Link, uint64(10*generation+i))
	}
	return p
}

// step does a step of the program.
func (s *simulation) step(step sim.Step) {
	i := step.Who % len(s.replicas)
	p := s.replicas[i]
	switch step.Do {
	case "acquire", "plain", "set":
		s.calls.Go(func() { s.call(p, step) })
	case "change k":
		changed := *p
		changed.k = 1 + step.N
		changed.s = must(New(p.Locker.Locker, changed.k))
		s.replicas[i] = &changed
	case "kill":
		p.Link.Kill()
		p.die()
		s.replicas[i] = s.newReplica(i, len(s.Steps)+int(step.At), p.k)
	case "close":
		s.replicas[i] = s.newReplica(i, len(s.Steps)+int(step.At), p.k)
		s.calls.Go(func() {
			ctx, cancel := context.WithTimeout(p.ctx, step.For)
			defer cancel()
			_ = p.Close(ctx) // takes the permits away that are left
			p.die()
		})
	default:
		s.oracle.trouble(step)
		s.Strike(s.nodes, step)
	}
}

// call acquires a permit, or the plain lock, and holds it.
func (s *simulation) call(p *replica, step sim.Step) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	if ms := step.With["leave"]; ms > 0 {
		timer := time.AfterFunc(time.Duration(ms)*time.Millisecond, cancel)
		defer timer.Stop()
	}
	opts := []core.CallOption{core.MaxWait(time.Duration(step.With["wait"]) * time.Millisecond)}

	held, err := s.acquire(ctx, p, step, opts)
	if err != nil {
		s.oracle.refused(p, step, ctx, err)
		return
	}

	for _, h := range held.holders {
		defer s.oracle.enter(h)()
	}
	if step.With["lose"] > 0 {
		h := held.holders[step.Who%len(held.holders)]
		_, _ = admin.Revoke(s.Context(), s.operator.Locker, slot.Name(h.key, h.slot), h.token) // fails if nodes fail
	}
	s.hold(held.ctx, step)
	if step.With["forget"] > 0 {
		s.Count("not released")
		return // its context ends
	}
	err = held.release(s.Context())
	s.oracle.released(p, err)
}

// hold waits for as long as the holder works.
func (s *simulation) hold(ctx context.Context, step sim.Step) {
	d := step.For
	if step.With["together"] > 0 {
		d += time.Second - (time.Since(s.Began)+d)%time.Second
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		s.Count("ended while it was held")
	}
}

// A hold is what a call got: a permit, the plain lock of a key, or those of several keys.
type hold struct {
	ctx     context.Context
	holders []*holder // one for each key
	release func(ctx context.Context, opts ...core.ReleaseOption) error
}

// acquire acquires a permit, the plain lock, or a set of plain locks.
func (s *simulation) acquire(ctx context.Context, p *replica, step sim.Step, opts []core.CallOption) (*hold, error) {
	isTry := step.With["try"] > 0
	switch step.Do {
	case "plain":
		return acquirePlain(ctx, p, keysOf(step)[0], isTry, opts)
	case "set":
		return acquireSet(ctx, p, keysOf(step), isTry, opts)
	}

	key := keysOf(step)[0]
	acquire := p.s.Acquire
	if isTry {
		acquire = p.s.TryAcquire
	}
	permit, err := acquire(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	h := &holder{name: p.name, key: key, k: p.k, slot: permit.Slot(), ctx: permit.Context(), token: permit.FencingToken()}
	return &hold{h.ctx, []*holder{h}, permit.Release}, nil
}

// acquirePlain acquires the plain lock of a key.
func acquirePlain(ctx context.Context, p *replica, key string, isTry bool, opts []core.CallOption) (*hold, error) {
	acquire := p.Acquire
	if isTry {
		acquire = p.TryAcquire
	}
	lease, err := acquire(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	h := &holder{name: p.name, key: key, k: 1, ctx: lease.Context(), token: lease.FencingToken()}
	return &hold{h.ctx, []*holder{h}, lease.Release}, nil
}

// acquireSet acquires the plain locks of several keys. All of them end with the set.
func acquireSet(ctx context.Context, p *replica, keys []string, isTry bool, opts []core.CallOption) (*hold, error) {
	acquire := p.AcquireAll
	if isTry {
		acquire = p.TryAcquireAll
	}
	set, err := acquire(ctx, keys, opts...)
	if err != nil {
		return nil, err
	}

	held := &hold{ctx: set.Context(), release: set.Release}
	for _, key := range keys {
		lease, isHeld := p.Holding(held.ctx, key)
		if !isHeld {
			return nil, fmt.Errorf("the set has no lease on %q", key)
		}
		held.holders = append(held.holders, &holder{name: p.name, key: key, k: 1, ctx: held.ctx, token: lease.FencingToken()})
	}
	return held, nil
}

// nothingIsTaken checks that each slot is free, by a process that has no part in any.
func (s *simulation) nothingIsTaken() {
	const largest = 5
	last := must(New(s.operator.Replica().Locker, largest))
	for _, key := range simKeys {
		for range largest {
			p, err := last.TryAcquire(s.Context(), key)
			if err != nil {
				s.Violation("something is still taken at the end: %v", err)
				return
			}
			defer p.Release(s.Context())
		}
	}
}
