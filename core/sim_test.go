package core

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/history"
)

// TestSimulation runs the real client on embedded nodes, in bubbles, under faults drawn from a seed. In every fifth seed
// the nodes run the real scripts, and otherwise the model of a node. The faults:
//
//   - Messages are lost, late or duplicated, or take nine tenths of a node timeout. Greetings and dials hang.
//   - Processes are paused, die, or reach only some of the nodes.
//   - Nodes are down, hung, slow, flushed, or restarted with all of their memory, an older snapshot or none.
//   - Nodes fail over to a replica that lags while the old primary still serves.
//   - Names of nodes move to another server while the old one lives on as its replica.
//   - Clocks step within the window, and by hours.
//   - Observers and loggers panic, are slow, or block for a time. Hooks of clients panic.
//   - In every third seed, an operator ends leases and drops records.
//   - In every tenth seed or so, one process has leases of hours, and the others have leases of seconds.
//
// Each seed draws its own mixture of faults, because a run with all of them never reaches some states.
//
// When the last fault has ended, every process reaches every node again within simFound. If a quorum of nodes votes,
// every process is served within simBack.
//
// Goroutines that are ready at the same instant run in any order. So a seed determines the faults, but not every step.
func TestSimulation(t *testing.T) {
	silenceStderr(t)
	sim.CollectLess(t)
	sim.Seeds(t, 1, append(slices.Clone(outcomes), slices.Collect(maps.Keys(faultKinds))...), func(t *testing.T, seed uint64, reached sim.Counts) {
		text := simulate(t, seed, reached)
		if t.Name() == "TestSimulation" { // SEED=n
			t.Log("\n" + text)
		}
	})
}

// outcomes lists the events that must happen at least once in each run of many seeds.
var outcomes = []string{
	"grants", "lost", "completed", "completed late", "completed again", "refused completion", "done", "settled",
	"healed", "quarantined", "unconfirmed", "record kept", "record excused", "reserved",
	"revoked", "not revoked", "told of revocation", "record dropped",
	"observer panics", "observer is slow", "observer blocks", "logger panics", "logger is slow", "logger blocks", "hook panics",
	"moved", "dial hung", "granted nearly late", "small pool",
	"lease of hours", "renewed after hours", "kept through trouble", "granted after hours", "served again", "reached again",
	"sets", "set lost",
}

// A mixture is the configuration that one seed draws.
type mixture struct {
	nodes            int
	unit             time.Duration   // a TTL of seconds; all other times are measured by it
	ttls             []time.Duration // by process; the first is the longest
	lull             time.Duration   // in the middle of the run; 0 unless the first process has leases of hours
	window, lag      time.Duration
	patience         time.Duration // the node timeout; 0 = the default
	retention        time.Duration
	jobs             float64       // share of the acquisitions that end in a completion
	delay            time.Duration // mean delay of a message
	tail, loss, twin float64       // probability per message of a long delay, of loss, of arriving twice
	hold, think      time.Duration
	pace             time.Duration // the shortest pause between batches
	every            time.Duration // mean time between faults
	faults           []string
	callbacks        misconduct // of observer and logger
	panics           float64    // probability per message that a hook panics
	pool             int        // connections of each client, as its Locker sees them; 0 = many
}

func draw(r *rand.Rand) mixture {
	coin := func() float64 { return float64(r.IntN(2)) }
	ttl := []time.Duration{2 * time.Second, 4 * time.Second}[r.IntN(2)]
	m := mixture{
		unit:      ttl,
		nodes:     []int{1, 2, 3, 3, 3, 4, 5}[r.IntN(7)],
		retention: []time.Duration{10 * time.Minute, 24 * time.Hour}[r.IntN(2)],
		jobs:      []float64{0, 0.5, 0.9}[r.IntN(3)],
		delay:     logUniform(r, 100*time.Microsecond, 100*time.Millisecond),
		tail:      0.1 * r.Float64() * coin(),
		loss:      0.1 * r.Float64() * coin(),
		twin:      0.05 * r.Float64() * coin(),
		hold:      logUniform(r, 30*time.Millisecond, 15*time.Second),
		think:     logUniform(r, 40*time.Millisecond, time.Second),
		every:     logUniform(r, 500*time.Millisecond, 6*time.Second),
	}

	for i := range 2 + r.IntN(3) {
		m.ttls = append(m.ttls, ttl)
		if i > 0 && r.IntN(4) == 0 {
			m.ttls[i] = ttl / 2
		}
	}

	if r.IntN(4) > 0 {
		m.window = slices.Min(m.ttls) / 10
	} else if r.IntN(2) == 0 {
		m.patience = slices.Min(m.ttls) * 2 / 5 // a renewal is still waited for after the end of its lease
	}
	if r.IntN(3) == 0 {
		m.lag = time.Duration(r.Int64N(int64(ttl)))
	}
	if r.IntN(2) == 0 {
		m.pace = logUniform(r, node.MinPace, ttl/20)
	}

	for _, k := range slices.Sorted(maps.Keys(faultKinds)) {
		f := faultKinds[k]
		if r.IntN(2) == 0 || f.rare && r.IntN(2) == 0 || f.steps && m.window == 0 || f.splits && m.lag == 0 {
			continue
		}
		m.faults = append(m.faults, k)
	}

	m.callbacks = misconduct(r.IntN(int(misconducts)))
	m.panics = 0.05 * r.Float64() * coin()
	if r.IntN(3) == 0 {
		m.pool = 4 + r.IntN(8)
	}
	if r.IntN(10) == 0 {
		m.drawHours(r)
	}
	return m
}

func (m *mixture) ttl() time.Duration     { return m.unit }
func (m *mixture) longest() time.Duration { return m.ttls[0] }

func logUniform(r *rand.Rand, lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), r.Float64()))
}

func exponential(r *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(mean))
}

// A simulation is one run.
type simulation struct {
	mixture
	*world
	seed      uint64
	processes []*simProcess
	history   history.History
	fences    fencedStore
	records   simRecords
	nemesis   nemesis
	operators simOperators
	promises  simPromises
	began     time.Time
	end       time.Time

	mu     sync.Mutex
	counts sim.Counts
	whims  *rand.Rand // draws the misconduct of observer and logger
	calm   bool       // the last fault has ended
}

const simTime = 20 * time.Second

func simulate(t *testing.T, seed uint64, total sim.Counts) string {
	t.Helper()
	var text string
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := &simulation{mixture: draw(r), seed: seed, began: time.Now(), counts: total}
		s.end = s.began.Add(simTime + s.lull)
		s.whims = rand.New(rand.NewPCG(seed, 2))
		s.operators.holds = map[simHold]*Lease{}
		s.promises.served = map[*simProcess]bool{}

		s.world = &world{t: t, nodes: testutil.NewNodes(t, s.mixture.nodes), known: s.pool}
		sim.ByModel(seed, s.world.nodes...)
		s.world.adjust = func(o *redis.Options) {
			if seed%2 == 0 { // these clients repeat dials and requests, as the clients of most users do
				o.MaxRetries, o.DialerRetries = 10, 5
			}
		}
		if s.pool > 0 {
			s.count("small pool")
		}
		s.nemesis.prepare(s, r)
		for i, ttl := range s.ttls {
			s.processes = append(s.processes, s.newProcess(i, s.process(append(s.options(ttl), s.quiet(i))...)))
		}

		var actors sync.WaitGroup
		for i, p := range s.processes {
			for line := range 2 {
				actors.Go(func() { s.client(p, i, line) })
			}
			actors.Go(func() { s.expects(p, i) })
		}
		if s.lull > 0 {
			actors.Go(s.steward)
		}
		actors.Go(s.nemesis.run)
		if seed%3 == 0 {
			p := s.newProcess(len(s.ttls), s.process(s.options(s.ttl())...))
			actors.Go(func() { s.operator(p) })
		}
		actors.Wait()

		s.recovers()
		s.settled()
		if err := s.history.Check(); err != nil {
			t.Errorf("%+v\n%v\n%s", s.mixture, err, s.history.Report())
		}
		text = fmt.Sprintf("%+v\n%v\n%s", s.mixture, s.counted(), s.history.Report())
	})
	return text
}

func (s *simulation) options(ttl time.Duration) []Option {
	options := []Option{TTL(ttl), WithMaxTTL(s.longest()), WithRestartGuard(true), WithReplicaLag(s.lag),
		WithClockWindow(s.window), Retention(s.retention),
		withRetryDelay(50*time.Millisecond, 500*time.Millisecond), option(func(p *policy) { p.Pace = s.pace }), WithObserver(s.observer()), WithLogger(s.logger())}
	if s.patience > 0 {
		options = append(options, withNodeTimeout(s.patience))
	}
	return options
}

func (s *simulation) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// counted returns a copy of the counts, because callbacks may still count.
func (s *simulation) counted() sim.Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}
