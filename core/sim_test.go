package core

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil"
)

// TestSimulation runs the real client on embedded nodes, in bubbles, under faults drawn from a seed. In every fiftieth
// seed the nodes run the real scripts, and otherwise the model of a node. The faults:
//
//   - Messages are lost, late or duplicated, or take nine tenths of a node timeout. Greetings and dials hang.
//   - Processes are paused, die, or reach only some of the nodes.
//   - Nodes are down, hung, slow, flushed, or restarted with all of their memory, an older snapshot or none.
//   - Nodes fail over to a replica that lags while the old primary still serves.
//   - Names of nodes move to another server while the old one lives on as its replica.
//   - Clocks step within the window, and by hours.
//   - Observers and loggers panic, are slow, or block for a time. Hooks of clients panic.
//   - In a third of the seeds, an operator ends leases and drops records.
//   - In a tenth of the seeds, one process has leases of hours, and the others have leases of seconds.
//
// Each seed draws its own mixture of faults, because a run with all of them never reaches some states. [draw] has the
// numbers of a mixture, and the steps of the program are the faults.
//
// When the last fault has ended, every process reaches every node again within simFound. If a quorum of nodes votes,
// every process is served within simBack.
func TestSimulation(t *testing.T) {
	silenceStderr(t)
	sim.CollectLess(t)
	sim.Campaign{Draw: draw, Run: simulate, MustReach: append(slices.Clone(outcomes), slices.Collect(maps.Keys(faultKinds))...)}.Test(t)
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

// draw draws a program. These are the numbers of its plan; 0 is the plainest value.
//
//	seconds         how long faults happen and clients work, without the lull of hours
//	nodes           nodes beyond the first
//	more            processes beyond the second
//	clients 0, …    goroutines of a process that lock
//	ttl             of leases, in seconds beyond 2
//	half 1, …       1: half of that TTL in that process
//	hours           the TTL of the first process is an hour and that many seconds; 0 = as the others'
//	expire          1: the lull outlasts leases of hours, not only the time until their renewal
//	window          1: clocks are checked, with a window of a tenth of the shortest TTL
//	patience        1: the node timeout is two fifths of the shortest TTL
//	lag             of replicas, in ms
//	day             1: the retention is a day, not ten minutes
//	delay           the mean delay of a message, in µs
//	tail            the number of messages in a thousand that are late
//	loss, twin      the number of messages in a thousand that are lost, and that arrive twice
//	panics          the number of messages in a thousand at which a hook panics
//	hold            the mean time for which a lease is held, in ms
//	hurry           by how much the mean pause of a client is shorter than a second, in ms
//	jobs            the number of acquisitions in a thousand that end in a completion
//	sets            the number of other acquisitions in a thousand that take both keys
//	strays          the number of holders in a thousand that are cut off until their leases have run out
//	haunts          1: nodes forget what happened while a holder was cut off
//	deaths          the number of holders in a thousand that die
//	operator        1: an operator ends leases and drops records
//	callbacks       the misconduct of observer and logger
//	pace            the shortest pause between batches, in µs beyond the least one; 0 = the least one
//	pool            connections of each client, as its Locker sees them, beyond 3; 0 = many
//	retries         1: clients repeat dials and requests, as the clients of most users do
func draw(r *rand.Rand) sim.Program {
	coin := func() float64 { return float64(r.IntN(2)) }
	plan := map[string]int{
		"seconds": int(simTime / time.Second),
		"ttl":     sim.Pick(r, 0, 2),
		"nodes":   sim.Pick(r, 0, 1, 2, 2, 2, 3, 4),
		"more":    r.IntN(3),
		"day":     r.IntN(2),
		"jobs":    sim.Pick(r, 0, 500, 900),
		"delay":   int(logUniform(r, 100*time.Microsecond, 100*time.Millisecond) / time.Microsecond),
		"tail":    int(100 * r.Float64() * coin()),
		"loss":    int(100 * r.Float64() * coin()),
		"twin":    int(50 * r.Float64() * coin()),
		"panics":  int(50 * r.Float64() * coin()),
		"hold":    int(logUniform(r, 30*time.Millisecond, 15*time.Second) / time.Millisecond),
		"hurry":   int((time.Second - logUniform(r, 40*time.Millisecond, time.Second)) / time.Millisecond),
		"sets":    200,
		"strays":  200,
		"deaths":  125,
	}

	for i := range 2 + plan["more"] {
		plan[fmt.Sprint("clients ", i)] = 2
		if i > 0 && r.IntN(4) == 0 {
			plan[fmt.Sprint("half ", i)] = 1
		}
	}

	if r.IntN(4) > 0 {
		plan["window"] = 1
	} else if r.IntN(2) == 0 {
		plan["patience"] = 1
	}
	if r.IntN(3) == 0 {
		plan["lag"] = 1 + r.IntN(int(mixtureOf(plan).unit/time.Millisecond))
	}
	if r.IntN(2) == 0 {
		plan["pace"] = int((logUniform(r, node.MinPace, mixtureOf(plan).unit/20) - node.MinPace) / time.Microsecond)
	}

	plan["callbacks"] = r.IntN(int(misconducts))
	if r.IntN(3) == 0 {
		plan["pool"] = 1 + r.IntN(8)
	}
	if r.IntN(10) == 0 {
		plan["hours"] = 1 + r.IntN(2*60*60)
		if r.IntN(3) == 0 {
			plan["expire"] = 1
		}
	}
	if r.IntN(3) == 0 {
		plan["operator"] = 1
	}
	plan["retries"] = r.IntN(2)

	return sim.Program{Plan: plan, Steps: drawFaults(r, plan)}
}

// A mixture is the configuration of one run.
type mixture struct {
	nodes                int
	unit                 time.Duration   // a TTL of seconds; all other times are measured by it
	ttls                 []time.Duration // by process; the first is the longest
	clients              []int           // by process
	length               time.Duration   // of the run, without the lull
	lull                 time.Duration   // in the middle of the run; 0 unless the first process has leases of hours
	window, lag          time.Duration
	patience             time.Duration // the node timeout; 0 = the default
	retention            time.Duration
	delay                time.Duration // mean delay of a message
	tail, loss, twin     float64       // probability per message of a long delay, of loss, of arriving twice
	panics               float64       // probability per message that a hook panics
	hold, think          time.Duration
	jobs                 float64 // share of the acquisitions that end in a completion
	sets, strays, deaths float64 // share of the acquisitions of both keys, of the holders that are cut off, and that die
	haunts, operator     bool
	callbacks            misconduct    // of observer and logger
	pace                 time.Duration // the shortest pause between batches
	pool                 int           // connections of each client, as its Locker sees them; 0 = many
	retries              bool
}

const simTime = 20 * time.Second

// mixtureOf returns the configuration that the numbers of a plan describe.
func mixtureOf(plan map[string]int) mixture {
	in := func(name string, unit time.Duration) time.Duration { return time.Duration(plan[name]) * unit }
	share := func(name string) float64 { return float64(plan[name]) / 1000 }
	m := mixture{
		nodes:     1 + plan["nodes"],
		unit:      2*time.Second + in("ttl", time.Second),
		length:    in("seconds", time.Second),
		lag:       in("lag", time.Millisecond),
		retention: 10 * time.Minute,
		delay:     in("delay", time.Microsecond),
		tail:      share("tail"),
		loss:      share("loss"),
		twin:      share("twin"),
		panics:    share("panics"),
		hold:      in("hold", time.Millisecond),
		think:     time.Second - in("hurry", time.Millisecond),
		jobs:      share("jobs"),
		sets:      share("sets"),
		strays:    share("strays"),
		deaths:    share("deaths"),
		haunts:    plan["haunts"] > 0,
		operator:  plan["operator"] > 0,
		callbacks: misconduct(plan["callbacks"]),
		retries:   plan["retries"] > 0,
	}

	for i := range 2 + plan["more"] {
		ttl := m.unit
		if plan[fmt.Sprint("half ", i)] > 0 {
			ttl /= 2
		}
		m.ttls = append(m.ttls, ttl)
		m.clients = append(m.clients, plan[fmt.Sprint("clients ", i)])
	}

	if plan["window"] > 0 {
		m.window = slices.Min(m.ttls) / 10
	}
	if plan["patience"] > 0 {
		m.patience = slices.Min(m.ttls) * 2 / 5 // a renewal is still waited for after the end of its lease
	}
	if plan["day"] > 0 {
		m.retention = 24 * time.Hour
	}
	if plan["pace"] > 0 {
		m.pace = node.MinPace + in("pace", time.Microsecond)
	}
	if plan["pool"] > 0 {
		m.pool = 3 + plan["pool"]
	}
	if plan["hours"] > 0 {
		m.addHours(time.Hour+in("hours", time.Second), plan["expire"] > 0)
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
	*sim.Trial
	mixture
	*world
	processes []*simProcess
	history   simHistory
	fences    fencedStore
	records   simRecords
	nemesis   nemesis
	operators simOperators
	promises  simPromises
	end       time.Time

	mu    sync.Mutex
	whims *rand.Rand // draws the misconduct of observer and logger
	calm  bool       // the last fault has ended
}

func simulate(t *sim.Trial) {
	s := &simulation{Trial: t, mixture: mixtureOf(t.Plan), whims: t.Random(1)}
	s.end = s.Began.Add(s.length)
	if s.length > simTime/2 {
		s.end = s.end.Add(s.lull)
	}
	s.history.Trial = t
	s.operators.holds = map[simHold]*Lease{}
	s.promises.served = map[*simProcess]bool{}

	s.world = &world{t: t.T, nodes: testutil.NewNodes(t, s.mixture.nodes), known: s.pool}
	sim.ByModel(s.Seed, s.world.nodes...)
	s.world.adjust = func(o *redis.Options) {
		if s.retries {
			o.MaxRetries, o.DialerRetries = 10, 5
		}
	}
	if s.pool > 0 {
		s.Count("small pool")
	}
	s.nemesis.prepare(s)
	for i, ttl := range s.ttls {
		s.processes = append(s.processes, s.newProcess(i, s.process(append(s.options(ttl), s.quiet(i))...)))
	}

	// All processes are made before the faults begin, because each needs its nodes at its start.
	var operator *simProcess
	if s.operator {
		operator = s.newProcess(len(s.ttls), s.process(s.options(s.ttl())...))
	}

	var actors sync.WaitGroup
	for i, p := range s.processes {
		for line := range s.clients[i] {
			actors.Go(func() { s.client(p, i, line) })
		}
		actors.Go(func() { s.expects(p, i) })
	}
	if s.lull > 0 {
		actors.Go(s.steward)
	}
	actors.Go(s.nemesis.run)
	if s.operator {
		actors.Go(func() { s.operate(operator) })
	}
	actors.Wait()

	s.recovers()
	s.settled()
	s.history.judge()
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
