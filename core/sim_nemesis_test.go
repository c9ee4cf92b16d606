package core

import (
	"context"
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
	r       *rand.Rand
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
	do     func(m *nemesis, i int, n *testutil.Node, long time.Duration)
}

var faultKinds = map[string]faultKind{
	"down": {do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { n.Down(); m.mends(long, n) }},
	"hang": {do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { n.Hang(); m.mends(long, n) }},
	// New connections are made, but get no answer.
	"hung greeting": {do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		m.breaks(n)
		n.Hang()
		m.mends(long, n)
	}},
	// No new connection is made.
	"hung dial": {do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		m.mu.Lock()
		m.dialled[i] = time.Now().Add(min(2*long, time.Until(m.s.end)))
		m.mu.Unlock()
		m.breaks(n)
	}},
	"move":        {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { m.move(i) }},
	"nearly late": {do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { m.process().slowDown(2 * long) }},
	"slow": {do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		n.Slow(exponential(m.r, m.s.ttl()/10))
		m.mends(long, n)
	}},
	"restart": {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { n.Restart() }},
	"empty":   {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { m.s.forget(i, n.RestartEmpty) }},
	"flush":   {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { m.s.forget(i, n.Flush) }},
	"promote": {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { n.Promote() }},
	// The snapshot is taken now and restored later. An "old snapshot" may restore it again.
	"snapshot": {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		saved := n.Snapshot()
		m.saved[i] = saved
		m.after(long, func() { m.restore(i, saved) })
	}},
	"old snapshot": {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { m.restore(i, m.saved[i]) }},
	"lossy promote": {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		saved := n.Snapshot()
		m.after(long/4, func() { m.s.forget(i, func() { m.s.world.nodes[i].PromoteFrom(saved) }) })
	}},
	"failover": {splits: true, rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		saved := n.Snapshot()
		m.after(min(long/4, m.s.lag), func() { m.failover(i, saved) })
	}},
	"rolling": {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		for i := range m.s.world.nodes {
			m.after(time.Duration(i)*m.s.ttl()/2, func() { m.s.forget(i, m.s.world.nodes[i].RestartEmpty) })
		}
	}},
	"rolling snapshots": {rare: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		for i, n := range m.s.world.nodes {
			saved := n.Snapshot()
			m.after(time.Duration(i)*m.s.ttl()/2, func() { m.restore(i, saved) })
		}
	}},
	"step": {steps: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		m.step(i, time.Duration((m.r.Float64()-0.3)*4*float64(m.s.ttl())), long)
	}},
	// The step is close to the window: up to 1.1 windows.
	"shift": {steps: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		m.step(i, time.Duration((m.r.Float64()-0.5)*2.2*float64(m.s.window)), long)
	}},
	"jump": {steps: true, do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		if m.offset[i].Abs() < time.Minute { // the promise covers offsets up to 2h, so jumps must not add up
			m.step(i, time.Duration((m.r.Float64()-0.5)*float64(4*time.Hour)), long)
		}
	}},
	"pause": {do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) { m.process().pause(long) }},
	"cut": {do: func(m *nemesis, i int, n *testutil.Node, long time.Duration) {
		m.process().cutOff(long, func() bool { return m.r.IntN(2) == 0 })
	}},
}

func (m *nemesis) prepare(s *simulation, r *rand.Rand) {
	m.s, m.r = s, r
	m.dials = rand.New(rand.NewPCG(s.seed, 1))
	m.wishes = make(chan planned, 100)
	m.former = make([][]*testutil.Node, len(s.world.nodes))
	m.offset = make([]time.Duration, len(s.world.nodes))
	m.dialled = make([]time.Time, len(s.world.nodes))
	m.retired = map[*testutil.Node]bool{}
	for _, n := range s.world.nodes {
		m.saved = append(m.saved, n.Snapshot())
	}
	s.world.serving, s.world.dialling = m.serving, m.dialling
}

func (m *nemesis) process() *simProcess { return m.s.processes[m.r.IntN(len(m.s.processes))] }

// run causes the faults. It returns at the end of the simulation, when every planned step has been done.
func (m *nemesis) run() {
	s := m.s
	next := s.end.Add(time.Hour)
	if len(s.faults) > 0 {
		next = time.Now().Add(exponential(m.r, s.every))
	}

	for {
		next = next.Add(s.lullAt(next))
		if next.After(s.end) {
			next = s.end.Add(time.Hour)
		}
		wake := next
		if len(m.plan) > 0 && m.plan[0].at.Before(wake) {
			wake = m.plan[0].at
		}
		if wake.After(s.end) && len(m.plan) == 0 {
			wake = s.end
		}

		select {
		case w := <-m.wishes:
			m.add(w)
			continue
		case <-time.After(time.Until(wake)):
		}

		switch {
		case len(m.plan) > 0 && !m.plan[0].at.After(time.Now()):
			do := m.plan[0].do
			m.plan = m.plan[1:]
			do()
		case !next.After(time.Now()):
			m.strike()
			next = time.Now().Add(exponential(m.r, s.every))
		default:
			m.rest()
			return
		}
	}
}

func (m *nemesis) strike() {
	kind := m.s.faults[m.r.IntN(len(m.s.faults))]
	m.s.count(kind)
	i := m.r.IntN(len(m.s.world.nodes))
	faultKinds[kind].do(m, i, m.s.world.nodes[i], exponential(m.r, m.s.ttl()/2))
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
	m.s.count("restored")
	m.s.forget(i, func() { m.s.world.nodes[i].RestartFrom(saved) })
}

// haunts makes some nodes return to their present state after away, when a holder that was cut off comes back. These
// nodes then forget all that happened in between.
func (m *nemesis) haunts(away time.Duration) {
	if !slices.Contains(m.s.faults, "old snapshot") {
		return
	}
	select {
	case m.wishes <- planned{time.Now(), func() {
		for i, n := range m.s.world.nodes {
			if saved := n.Snapshot(); m.r.IntN(2) == 0 {
				m.after(away, func() { m.restore(i, saved) })
			}
		}
	}}:
	default:
	}
}

func (m *nemesis) step(i int, d, long time.Duration) {
	n := m.s.world.nodes[i]
	m.offset[i] += d
	n.StepClock(d)
	m.after(long, func() {
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
	sim.ByModel(m.s.seed, replica)
	m.s.t.Cleanup(replica.Close)
	replica.StepClock(m.offset[i])
	m.s.forget(i, func() {
		replica.RestartFrom(saved)
		m.former[i] = []*testutil.Node{old}
		m.mu.Lock()
		m.s.world.nodes[i] = replica
		m.mu.Unlock()
	})
	m.s.count("failed over")
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
// replica of the new one, keeps its connections, and refuses requests in one of several ways.
func (m *nemesis) move(i int) {
	if len(m.former[i]) > 0 {
		return // it is failing over
	}
	old, replica := m.s.world.nodes[i], testutil.StartNode()
	sim.ByModel(m.s.seed, replica)
	m.s.t.Cleanup(replica.Close)
	replica.StepClock(m.offset[i])
	says := []string{"a replica, by the guard", "a replica", "a replica that is cut", "loading", "of a cluster"}[m.r.IntN(5)]
	m.s.forget(i, func() {
		notTheOne[says](old)
		replica.RestartFrom(old.Snapshot())
		m.retired[old] = true
		m.mu.Lock()
		m.s.world.nodes[i] = replica
		m.mu.Unlock()
	})
	old.Up() // it must answer that it is not the node any more
	m.s.count("moved")
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
	m.s.count("dial hung")
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
