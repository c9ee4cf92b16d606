package core

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil"
)

// A nemesis causes faults until the end of the simulation, and then ends them all. One goroutine causes all faults, so
// each fault sees the effects of the faults before it.
type nemesis struct {
	s       *simulation
	plan    []planned            // sorted by time
	wishes  chan planned         // faults that holders ask for
	saved   []*testutil.Snapshot // by node
	offset  []time.Duration      // by node: the offset of its clock
	former  [][]*testutil.Node   // by node: primaries that were replaced and still serve
	dialled []time.Time          // by node: dials hang until then; guarded by mu
	retired map[*testutil.Node]bool

	mu    sync.Mutex
	dials *rand.Rand // guarded by mu, like all fields that serving reads
}

type planned struct {
	at time.Time
	do func()
}

// A faultKind is a fault of a node or of a process.
type faultKind struct {
	steps  bool // needs the clock window
	splits bool // needs the replica lag
	rare   bool // takes a node out for a while; with many of these faults no key would ever be granted
	// draw changes the fields of a fault, which has a random node as Who and a random time as For. It may be nil.
	draw func(r *rand.Rand, m *mixture, f *sim.Step)
	do   func(m *nemesis, f sim.Step, i int, n *testutil.Node) // i is the number of n
}

// isIn reports whether a fault of that kind is covered by the promises to the processes.
func (k faultKind) isIn(m *mixture) bool {
	return !(k.steps && m.window == 0 || k.splits && m.lag == 0)
}

var faultKinds = map[string]faultKind{
	"down": {do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { n.Down(); m.mends(f.For, n) }},
	"hang": {do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { n.Hang(); m.mends(f.For, n) }},
	// New connections are made, but get no answer.
	"hung greeting": {do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
		m.breaks(n)
		n.Hang()
		m.mends(f.For, n)
	}},
	// No new connection is made.
	"hung dial": {do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
		m.mu.Lock()
		m.dialled[i] = time.Now().Add(min(2*f.For, time.Until(m.s.end)))
		m.mu.Unlock()
		m.breaks(n)
	}},
	"move": {
		rare: true,
		draw: func(r *rand.Rand, _ *mixture, f *sim.Step) { f.For, f.N = 0, r.IntN(len(movedNodes)) },
		do:   func(m *nemesis, f sim.Step, i int, n *testutil.Node) { m.move(i, movedNodes[f.N]) },
	},
	"nearly late": {draw: ofProcess, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { m.process(f).slowDown(2 * f.For) }},
	"slow": {
		draw: func(r *rand.Rand, m *mixture, f *sim.Step) { f.N = int(exponential(r, m.ttl()/10) / time.Millisecond) },
		do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
			n.Slow(time.Duration(f.N) * time.Millisecond)
			m.mends(f.For, n)
		},
	},
	"restart": {rare: true, draw: instant, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { n.Restart() }},
	"empty":   {rare: true, draw: instant, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { m.s.forget(i, n.RestartEmpty) }},
	"flush":   {rare: true, draw: instant, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { m.s.forget(i, n.Flush) }},
	"promote": {rare: true, draw: instant, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { n.Promote() }},
	// The snapshot is taken now and restored later. An "old snapshot" may restore it again.
	"snapshot": {rare: true, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
		saved := n.Snapshot()
		m.saved[i] = saved
		m.after(f.For, func() { m.restore(i, saved) })
	}},
	"old snapshot": {rare: true, draw: instant, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { m.restore(i, m.saved[i]) }},
	"lossy promote": {rare: true, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
		saved := n.Snapshot()
		m.after(f.For/4, func() { m.s.forget(i, func() { m.s.world.nodes[i].PromoteFrom(saved) }) })
	}},
	"failover": {splits: true, rare: true, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
		saved := n.Snapshot()
		m.after(min(f.For/4, m.s.lag), func() { m.failover(i, saved) })
	}},
	"rolling": {rare: true, draw: instant, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
		for i := range m.s.world.nodes {
			m.after(time.Duration(i)*m.s.ttl()/2, func() { m.s.forget(i, m.s.world.nodes[i].RestartEmpty) })
		}
	}},
	"rolling snapshots": {rare: true, draw: instant, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
		for i, n := range m.s.world.nodes {
			saved := n.Snapshot()
			m.after(time.Duration(i)*m.s.ttl()/2, func() { m.restore(i, saved) })
		}
	}},
	"step": {
		steps: true,
		draw:  func(r *rand.Rand, m *mixture, f *sim.Step) { f.N = millis((r.Float64() - 0.3) * 4 * float64(m.ttl())) },
		do:    func(m *nemesis, f sim.Step, i int, n *testutil.Node) { m.step(i, f) },
	},
	// The step is close to the window: up to 1.1 windows.
	"shift": {
		steps: true,
		draw: func(r *rand.Rand, m *mixture, f *sim.Step) {
			f.N = millis((r.Float64() - 0.5) * 2.2 * float64(m.window))
		},
		do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { m.step(i, f) },
	},
	"jump": {
		steps: true,
		draw: func(r *rand.Rand, _ *mixture, f *sim.Step) {
			f.N = millis((r.Float64() - 0.5) * float64(4*time.Hour))
		},
		do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
			if m.offset[i].Abs() < time.Minute { // the promise covers offsets up to 2h, so jumps must not add up
				m.step(i, f)
			}
		},
	},
	"pause": {draw: ofProcess, do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) { m.process(f).pause(f.For) }},
	"cut": {
		draw: func(r *rand.Rand, m *mixture, f *sim.Step) {
			ofProcess(r, m, f)
			f.With = map[string]int{}
			for i := range m.nodes {
				f.With[fmt.Sprint("node ", i)] = r.IntN(2)
			}
		},
		do: func(m *nemesis, f sim.Step, i int, n *testutil.Node) {
			m.process(f).cutOff(f.For, func(i int) bool { return f.With[fmt.Sprint("node ", i)] > 0 })
		},
	},
}

// movedNodes are the keys of notTheOne that a move draws.
var movedNodes = []string{"a replica, by the guard", "a replica", "a replica that is cut", "loading", "of a cluster"}

func instant(_ *rand.Rand, _ *mixture, f *sim.Step)   { f.For = 0 }
func ofProcess(r *rand.Rand, m *mixture, f *sim.Step) { f.Who = r.IntN(len(m.ttls)) }

// millis returns a number of nanoseconds in whole milliseconds.
func millis(ns float64) int { return int(ns / float64(time.Millisecond)) }

// drawFaults draws the faults of a run, and whether there are haunts.
func drawFaults(r *rand.Rand, plan map[string]int) (faults []sim.Step) {
	m := mixtureOf(plan)
	every := logUniform(r, 500*time.Millisecond, 6*time.Second)
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(faultKinds)) {
		f := faultKinds[k]
		if r.IntN(2) == 0 || f.rare && r.IntN(2) == 0 || !f.isIn(&m) {
			continue
		}
		kinds = append(kinds, k)
	}
	if len(kinds) == 0 {
		return nil
	}

	if slices.Contains(kinds, "old snapshot") {
		plan["haunts"] = 1
	}
	for at := exponential(r, every); ; at += exponential(r, every) {
		at += m.lullAt(at)
		if at > m.length+m.lull {
			return faults
		}
		f := sim.Step{At: at, Do: sim.Pick(r, kinds...), Who: r.IntN(m.nodes), For: exponential(r, m.ttl()/2)}
		if draw := faultKinds[f.Do].draw; draw != nil {
			draw(r, &m, &f)
		}
		faults = append(faults, f)
	}
}

func (m *nemesis) prepare(s *simulation) {
	m.s = s
	m.dials = s.Random(0)
	m.wishes = make(chan planned, 100)
	m.former = make([][]*testutil.Node, len(s.world.nodes))
	m.offset = make([]time.Duration, len(s.world.nodes))
	m.dialled = make([]time.Time, len(s.world.nodes))
	m.retired = map[*testutil.Node]bool{}
	for _, n := range s.world.nodes {
		m.saved = append(m.saved, n.Snapshot())
	}
	s.world.serving, s.world.dialling = m.serving, m.dialling

	for _, f := range s.Steps {
		if at := s.Began.Add(f.At); !at.After(s.end) {
			m.plan = append(m.plan, planned{at, func() { m.strike(f) }})
		}
	}
}

// process returns the process that a fault happens to.
func (m *nemesis) process(f sim.Step) *simProcess { return m.s.processes[f.Who%len(m.s.processes)] }

// run causes the faults. It returns at the end of the simulation, when every planned step has been done.
func (m *nemesis) run() {
	for {
		wake := m.s.end
		if len(m.plan) > 0 {
			wake = m.plan[0].at
		}

		select {
		case w := <-m.wishes:
			m.add(w)
			continue
		case <-time.After(time.Until(wake)):
		}

		if len(m.plan) == 0 {
			m.rest()
			return
		}
		do := m.plan[0].do
		m.plan = m.plan[1:]
		do()
	}
}

func (m *nemesis) strike(f sim.Step) {
	kind := faultKinds[f.Do]
	if !kind.isIn(&m.s.mixture) {
		return // of a smaller program, in which processes are promised less
	}
	m.s.Note(f)
	i := f.Who % len(m.s.world.nodes)
	kind.do(m, f, i, m.s.world.nodes[i])
}

// after plans a step in d, but no later than the end of the simulation.
func (m *nemesis) after(d time.Duration, do func()) {
	m.add(planned{time.Now().Add(min(d, max(0, time.Until(m.s.end)))), do})
}

func (m *nemesis) add(p planned) {
	i, _ := slices.BinarySearchFunc(m.plan, p, func(a, b planned) int {
		if a.at.After(b.at) {
			return 1
		}
		return -1
	})
	m.plan = slices.Insert(m.plan, i, p)
}

func (m *nemesis) mends(d time.Duration, n *testutil.Node) {
	m.after(d, func() {
		if !m.retired[n] {
			n.Up()
		}
	})
}

func (m *nemesis) restore(i int, saved *testutil.Snapshot) {
	m.s.Count("restored")
	m.s.Tracef("a snapshot of node %d is restored", i)
	m.s.forget(i, func() { m.s.world.nodes[i].RestartFrom(saved) })
}

// haunts makes some nodes return to their present state after away, when a holder that was cut off comes back. These
// nodes then forget all that happened in between.
func (m *nemesis) haunts(away time.Duration, r *rand.Rand) {
	which := r.Uint64()
	if !m.s.haunts {
		return
	}
	select {
	case m.wishes <- planned{time.Now(), func() {
		for i, n := range m.s.world.nodes {
			if saved := n.Snapshot(); which>>i&1 == 0 {
				m.after(away, func() { m.restore(i, saved) })
			}
		}
	}}:
	default:
	}
}

func (m *nemesis) step(i int, f sim.Step) {
	d := time.Duration(f.N) * time.Millisecond
	m.offset[i] += d
	m.s.world.nodes[i].StepClock(d)
	m.after(f.For, func() {
		m.offset[i] -= d
		m.s.world.nodes[i].StepClock(-d)
	})
}

// failover promotes a replica that lags. Until the replica lag is over, the old primary serves its existing
// connections, and half of the new ones: their clients do not know of the failover yet.
func (m *nemesis) failover(i int, saved *testutil.Snapshot) {
	old := m.s.world.nodes[i]
	if len(m.former[i]) > 0 {
		return // one at a time
	}
	replica := testutil.StartNode()
	sim.ByModel(m.s.Seed, replica)
	m.s.t.Cleanup(replica.Close)
	replica.StepClock(m.offset[i])
	m.s.forget(i, func() {
		replica.RestartFrom(saved)
		m.former[i] = []*testutil.Node{old}
		m.mu.Lock()
		m.s.world.nodes[i] = replica
		m.mu.Unlock()
	})
	m.s.Count("failed over")
	m.s.Tracef("node %d has failed over", i)
	m.after(m.s.lag, func() {
		m.s.forget(i, func() {
			m.retired[old] = true
			old.Down()
			m.mu.Lock()
			m.former[i] = nil
			m.mu.Unlock()
		})
	})
}

// breaks ends all connections to a node.
func (m *nemesis) breaks(n *testutil.Node) {
	n.Down()
	n.Up()
}

// move makes the name of a node lead to its replica, which was promoted and does not lag. The old server lives on as a
// replica of the new one, keeps its connections, and refuses requests as one of notTheOne.
func (m *nemesis) move(i int, says string) {
	if len(m.former[i]) > 0 {
		return // it is failing over
	}
	old, replica := m.s.world.nodes[i], testutil.StartNode()
	sim.ByModel(m.s.Seed, replica)
	m.s.t.Cleanup(replica.Close)
	replica.StepClock(m.offset[i])
	m.s.forget(i, func() {
		notTheOne[says](old)
		replica.RestartFrom(old.Snapshot())
		m.retired[old] = true
		m.mu.Lock()
		m.s.world.nodes[i] = replica
		m.mu.Unlock()
	})
	old.Up() // it must answer that it is not the node any more
	m.s.Count("moved")
}

// dialling blocks a dial of node i if dials hang. Like a lost packet, such a dial never succeeds later: it ends with
// the timeout of the client.
func (m *nemesis) dialling(ctx context.Context, i int) error {
	m.mu.Lock()
	rest := time.Until(m.dialled[i])
	m.mu.Unlock()
	if rest <= 0 {
		return nil
	}
	m.s.Count("dial hung")
	select {
	case <-time.After(coretest.Patience):
		return coretest.ErrLost
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serving returns the server that a new connection to node i reaches.
func (m *nemesis) serving(i int) *testutil.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.former[i]; len(f) > 0 && m.dials.IntN(2) == 0 {
		return f[0]
	}
	return m.s.world.nodes[i]
}

// rest ends all faults, checks the promises for the time after the last fault, and waits until the effects of all
// faults are over.
func (m *nemesis) rest() {
	for _, n := range m.s.world.nodes {
		n.Up()
	}
	m.s.mended()
	m.s.keepsPromises()
	time.Sleep(time.Until(m.s.end.Add(m.s.settling())))
}
