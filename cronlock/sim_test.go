package cronlock_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/internal/sim"
)

// TestSimulation runs a job on up to four replicas. Their hosts are the engine, gocron, or a cron library that calls
// early, late, twice or not at all. Nodes and replicas fail at the ticks and at given points of a claim. The function
// takes long, fails, panics and ignores its context. The oracle (sim_oracle_test.go) judges all runs by the rules of
// the package documentation.
func TestSimulation(t *testing.T) {
	sim.CollectLess(t)
	campaign.Test(t)
}

// A seed repeats in spite of gocron's loop.
func TestSeedRepeats(t *testing.T) {
	race.SkipSweep(t)
	campaign.Repeats(t, "TestSimulation", 11)
}

var campaign = sim.Campaign{Draw: draw, Run: simulate, MustReach: mustReach, Patch: &yieldingGocron}

// When a scheduler of gocron stops, it waits for its jobs in a loop that blocks nowhere.
var yieldingGocron = sim.Patch{
	Module: "github.com/go-co-op/gocron/v2",
	File:   "executor.go",
	Edits: [][2]string{
		{"import (\n", "import (\n\t\"runtime\"\n"},
		{"\t\tcount++\n\t\t\tdefault:\n", "\t\tcount++\n\t\t\tdefault:\n\t\t\t\truntime.Gosched()\n"},
	},
}

var mustReach = []string{
	"down", "hang", "slow", "restart", "restart empty", "flush", "promote", "drop replies", "step clock", "storm",
	"cut", "kill", "close", "remove", "run now", "resign", "revoke", "jump", "call", "host sleeps",
	"far", "empty in turn", "removed by the scheduler", "removed by its tag", "second service", "progress of the second service",
	"short outage of all nodes", "short outage of a quorum", "short outage of a quorum, of which a node hangs",
	"slow observer", "slow observer of an operation that begins", "slow observer of an operation that ends",
	"observer panics", "observer panics at an operation that begins", "observer panics at an operation that ends",
	"tick_run", "tick_rerun", "tick_superseded", "tick_held", "tick_done", "tick_missed", "tick_not_leader", "tick_unavailable",
	"tick_refused", "run_lost", "run_unrecorded", "leader_elected", "leader_lost", "leader_resigned",
	"engine", "gocron", "host", "schedule 0", "schedule 1", "schedule 2", "schedule 3", "schedule 4",
	"asking", "claimed", "start being recorded", "start recorded", "running", "returned", "end being recorded", "end recorded",
	"panicked", "told to stop", "returned after the end", "own error", "ignored its end", "skipped by a listener",
	"again", "previous", "previous after failures", "progress", "late", "history",
	"healthy", "sick", "yielded during a run", "in doubt: a start", "in doubt: an end", "fewer starts by another policy",
}

// draw draws a program. These are the numbers of its plan; 0 is the plainest value.
//
//	more            replicas beyond the first
//	nodes           0: three nodes, 1: one, 2: five
//	schedule        0: Every, 1: a crontab with seconds, 2: a crontab across a change of clocks, 3: At,
//	                4: a Schedule of the user
//	period          in seconds
//	ttl, grace      in seconds; a grace is that much longer than the TTL, and 0 is the default grace
//	starts, others  the number that AtLeastOnce allows, and its value for every second process
//	elector         1: there is one
//	host 0, …       the host of a replica. 0: the engine, 1: gocron, 2: a library that calls RunDue
//	ahead 0, …      how far the clock of a replica's host is ahead, in ms
//	limit           the limit mode of gocron. 1: reschedule, 2: wait
//	work            the mean time that the function takes, in ms
//	error, panic    the number of runs in a thousand that end so
//	hang            the number of runs in a thousand that take 30 s or two TTLs
//	ignore          the number of runs in a thousand that ignore the end of their context
//	skipped         the number of calls in a thousand that a listener of gocron skips
//	no window       1: clocks are not checked, and the nodes' clocks are ahead by "nodes ahead", in ms
//	observer        1: it is slow, 2: it panics now and then
//	second          1: each process has a second Service, with other options
func draw(r *rand.Rand) sim.Program {
	plan := map[string]int{
		"more":     sim.Pick(r, 0, 1, 1, 2, 3),
		"nodes":    sim.Pick(r, 0, 0, 0, 0, 0, 1, 2),
		"schedule": r.IntN(5),
		"period":   sim.Pick(r, 1, 2, 5, 10, 15, 20),
		"ttl":      sim.Pick(r, 3, 3, 5, 10),
		"grace":    sim.Pick(r, 0, 1, 1, 5, 20, 90),
		"starts":   sim.Pick(r, 0, 0, 1, 2, 3, 10),
		"limit":    sim.Pick(r, 0, 0, 0, 1, 2),
		"work":     sim.Pick(r, 0, 0, 100, 1000, 5000, 15000),
		"delay":    sim.Pick(r, 0, 0, 1, 5),
		"late":     sim.Pick(r, 0, 20, 100),
		"lost":     sim.Pick(r, 0, 20, 100),
	}

	plan["observer"], plan["second"] = sim.Pick(r, 0, 0, 0, 1, 2), sim.Pick(r, 0, 0, 0, 1)
	for _, name := range []string{"error", "panic", "hang", "ignore", "skipped"} {
		plan[name] = sim.Pick(r, 0, 0, 50, 300)
	}

	if r.IntN(3) == 0 {
		if plan["elector"] = 1; plan["ttl"] > 3 || r.IntN(4) > 0 { // an election takes requests every second
			plan["period"] = min(plan["period"], 8)
		}
	}
	if r.IntN(3) > 0 {
		plan["others"] = sim.Pick(r, 1, 2, 3)
	}

	if r.IntN(6) == 0 {
		plan["no window"], plan["nodes ahead"] = 1, sim.Pick(r, 0, 1500, -5000, 60000, -60000)
	}
	if plan["nodes"] == 1 && plan["elector"] == 0 && r.IntN(2) == 0 {
		plan["period"], plan["grace"] = sim.Pick(r, 61, 150, 3600, 24*3600), sim.Pick(r, 0, plan["grace"])
	}

	hosts := sim.Pick(r, 0, 1, 2, 3)
	for i := range 1 + plan["more"] {
		plan[fmt.Sprint("host ", i)] = hosts
		if hosts == 3 {
			plan[fmt.Sprint("host ", i)] = r.IntN(3)
		}
		plan[fmt.Sprint("ahead ", i)] = sim.Pick(r, 0, 0, 0, 40, 400, 1500, 5000, 60000, -400, -5000, -60000)
	}

	outlasts := plan["nodes"] != 1 && plan["elector"] == 0 && r.IntN(16) == 0
	if outlasts { // runs go on after all nodes have lost their records
		plan["ttl"], plan["period"], plan["grace"], plan["work"] = 3, 61, 90, 30000
	}

	p := sim.Program{Plan: plan}
	instants := ticks(p)
	if outlasts {
		for range 3 {
			p.Steps = append(p.Steps, sim.Step{At: instants[r.IntN(len(instants)/2)].Sub(began(p)) - time.Second, Who: r.IntN(1 + plan["more"]), Do: "empty in turn@running", For: time.Second})
		}
	}

	for range r.IntN(12) {
		p.Steps = append(p.Steps, happening(r, p, instants[r.IntN(len(instants)*2/3)]))
	}
	return p
}

// happening draws a step that happens around a tick.
func happening(r *rand.Rand, p sim.Program, tick time.Time) sim.Step {
	s := sim.Step{
		At:  max(0, tick.Sub(began(p))+sim.Pick[time.Duration](r, -2, -1, 1, 1)*sim.Between(r, time.Millisecond, min(period(p), 30*time.Second))),
		Who: r.IntN(1 + p.Plan["more"]),
		For: sim.Between(r, time.Second, min(2*time.Minute, 10*time.Second+3*period(p))),
	}
	kinds := []string{"cut", "kill", "close", "remove", "remove", "run now", "run now", "jump", "call", "host sleeps", "storm", "down", "hang", "slow",
		"restart", "promote", "drop replies", "revoke", "far"}
	if p.Plan["nodes"] != 1 { // a single node without its memory breaks the guarantee
		kinds = append(kinds, "restart empty", "flush", "empty in turn")
	}
	if p.Plan["no window"] == 0 { // without the window, no process notices that a clock steps
		kinds = append(kinds, "step clock")
	}
	if p.Plan["elector"] == 1 {
		kinds = append(kinds, "resign", "resign", "revoke")
	}

	if s.Do = sim.Pick(r, kinds...); r.IntN(3) == 0 {
		s.Do = sim.Pick(r, "kill", "kill", "cut", "close", "remove", "lose", "no nodes", "resign", "revoke", "storm", "run now") + "@" + sim.Pick(r, phases...)
	}

	if r.IntN(12) == 0 {
		s.Do, s.For = "short outage@"+sim.Pick(r, "returned", "running", "end being recorded", "start being recorded"), sim.Between(r, 200*time.Millisecond, 4*time.Second)
	}

	if s.Do == "empty in turn" && r.IntN(2) == 0 {
		s.Do = "empty in turn@running"
	}
	if do, _, later := strings.Cut(s.Do, "@"); later && (do == "remove" || do == "short outage") {
		s.N = r.IntN(3)
	}

	switch s.Do {
	case "slow":
		s.N = sim.Pick(r, 10, 100, 1500)
	case "drop replies", "call", "lose":
		s.N = 1 + r.IntN(8)
	case "step clock", "jump":
		s.N = sim.Pick(r, -1, 1) * int(sim.Between(r, 10*time.Millisecond, time.Minute).Milliseconds())
	case "close", "kill", "revoke":
		s.N = r.IntN(2)
	case "remove":
		s.N = r.IntN(3)
	}
	return s
}

// began returns the time at which a program begins. If its schedule depends on a change of clocks, that is shortly
// before clocks go forward in Berlin.
func began(p sim.Program) time.Time {
	if p.Plan["schedule"] == 2 {
		return time.Date(2000, 3, 26, 0, 59, 10, 0, time.UTC)
	}
	return time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC)
}

func period(p sim.Program) time.Duration {
	return max(time.Duration(p.Plan["period"])*time.Second, time.Second)
}

// often is the least number of ticks of a program.
const often = 21

// berlin returns a time zone in which clocks change.
var berlin = sync.OnceValue(func() *time.Location {
	z, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return z
})

// schedule returns the schedule of a program.
func schedule(p sim.Program) cronlock.Schedule {
	d := period(p)
	switch p.Plan["schedule"] {
	case 1:
		if d < time.Minute {
			return cronlock.Crontab(fmt.Sprintf("*/%d * * * * *", int(d.Seconds())), time.UTC)
		}
	case 2:
		if d < time.Minute { // 1:59:59 is followed by 3:00:00
			return cronlock.Crontab(fmt.Sprintf("*/%d * 1,2,3 * * *", int(d.Seconds())), berlin())
		}
	case 3:
		var all []time.Time
		for i, at := 0, began(p); i < 3*often; i++ {
			at = at.Add(d/4 + d*time.Duration(i*i%7)/4)
			all = append(all, at)
		}
		return cronlock.At(all...)
	case 4:
		return uneven(d)
	}
	return cronlock.Every(d)
}

// An uneven schedule has pairs of ticks that are close together, and skips some ticks.
type uneven time.Duration

func (u uneven) Next(after time.Time) time.Time {
	every := cronlock.Every(max(time.Duration(u), time.Second))
	for at := every.Next(after.Add(-time.Duration(u)/3 - time.Second)); ; at = every.Next(at) {
		k := at.Unix() / max(int64(time.Duration(u)/time.Second), 1)
		if k%4 == 2 {
			continue
		}
		if at.After(after) {
			return at
		}
		if second := at.Add(time.Duration(u) / 3); k%4 == 0 && second.After(after) {
			return second
		}
	}
}

// ticks returns the first ticks of a program.
func ticks(p sim.Program) (all []time.Time) {
	s := schedule(p)
	for at := s.Next(began(p)); len(all) < often; at = s.Next(at) {
		all = append(all, at)
	}
	return all
}
