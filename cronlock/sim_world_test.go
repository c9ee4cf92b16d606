package cronlock_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/admin"
	"github.com/lockkit/lockkit/cronlock"
	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// A world has the nodes and processes of a program that runs, and its oracle.
type world struct {
	*sim.Trial
	nodes      []*testutil.Node
	first      *locktest.Locker
	schedule   cronlock.Schedule
	ttl, grace time.Duration
	tasks      sync.WaitGroup

	mu           sync.Mutex
	rng          *rand.Rand
	replicas     []*process // the process of each replica; nil if none lives
	incarnations int
	storms       int
	distant      int // the number of steps "far" that last
	ambushes     []sim.Step
	over         bool
	oracle
}

// simulate runs a program.
func simulate(t *sim.Trial) {
	time.Sleep(time.Until(began(t.Program)))
	t.Began = time.Now()
	w := &world{
		Trial: t, schedule: schedule(t.Program), ttl: max(3, time.Duration(t.Is("ttl"))) * time.Second, rng: t.Random(0),
		nodes: testutil.NewNodes(t, map[int]int{0: 3, 1: 1, 2: 5}[t.Is("nodes")]), replicas: make([]*process, 1+t.Is("more")),
	}

	if w.grace = max(time.Minute, 3*w.ttl); t.Is("grace") > 0 {
		w.grace = w.ttl + time.Duration(t.Is("grace"))*time.Second
	}
	w.oracle.ticks, w.fewest = map[int64]*tick{}, 10
	w.oracle.others = map[time.Time]int{}

	t.Count("schedule " + string('0'+rune(t.Is("schedule"))))
	sim.ByModel(t.Seed, w.nodes...)
	for _, n := range w.nodes {
		n.StepClock(w.off())
	}

	opts := []core.Option{core.TTL(w.ttl)}
	if t.Is("no window") == 1 {
		opts = append(opts, core.WithClockWindow(0))
	}
	w.first = locktest.NewOn(t, w.nodes, opts...)
	w.must(w.first.Close(t.Context()))

	for who := range w.replicas {
		w.start(who)
	}

	instants := ticks(t.Program)
	end := instants[len(instants)-1].Sub(t.Began) + 3*time.Second
	for _, s := range t.Steps {
		end = max(end, s.At+s.For+w.tail()+bound+3*time.Second)
	}

	t.Follow(end, w.happens)
	w.finish()
}

// off returns how far the nodes' clocks are ahead during the whole program.
func (w *world) off() time.Duration {
	return time.Duration(w.Is("no window")*w.Is("nodes ahead")) * time.Millisecond
}

// finish ends the program, and judges it as a whole.
func (w *world) finish() {
	w.judgeProgress()
	w.judgeSecond()
	w.judgeHistory()
	w.judgeElection()

	w.mu.Lock()
	w.over = true
	for _, p := range w.replicas {
		if p != nil && !p.closed {
			p.shut()
			w.tasks.Go(func() { p.end(true) })
		}
	}
	w.mu.Unlock()
	w.tasks.Wait()
}

func (w *world) must(err error) {
	if err != nil {
		w.Violation("%v", err)
	}
}

// happens makes a step happen.
func (w *world) happens(s sim.Step) {
	switch s.Do {
	case "restart empty", "flush":
		w.forget(s.Who % len(w.nodes))
	}

	if w.Strike(w.nodes, s) {
		w.struck(s)
		return
	}

	if do, _, later := strings.Cut(s.Do, "@"); later {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ambushes = append(w.ambushes, s)
		w.Count(do + "@")
		return
	}

	w.mu.Lock()
	p := w.replicas[s.Who%len(w.replicas)]
	w.mu.Unlock()
	if p != nil {
		p.meets(s.Do, s)
	}
}

// phases are the points of a claim and of a run at which a step may happen.
var phases = []string{"asking", "claimed", "start being recorded", "start recorded", "running", "returned", "end being recorded", "end recorded"}

// reach is called when a process reaches a phase. If a step waits for that phase, reach makes it happen to the process.
func (w *world) reach(phase string, p *process) {
	w.Count(phase)
	w.mu.Lock()
	i := slices.IndexFunc(w.ambushes, func(s sim.Step) bool { return strings.HasSuffix(s.Do, "@"+phase) })
	if i < 0 || p.dead || w.over {
		w.mu.Unlock()
		return
	}
	s := w.ambushes[i]
	w.ambushes = slices.Delete(w.ambushes, i, i+1)
	w.mu.Unlock()

	do, _, _ := strings.Cut(s.Do, "@")
	w.Tracef("%s at %s: %s", p.name, phase, s)
	p.meets(do, s)
}

// meets makes a step happen to a process.
func (p *process) meets(do string, s sim.Step) {
	switch do {
	case "cut":
		p.locks.Link.Cut()
		p.trouble(0, "cut")
		p.ill(p.who, s.For)
		p.mu.Lock()
		if p.cut.IsZero() {
			p.cut = time.Now()
		}
		p.mu.Unlock()
		time.AfterFunc(s.For, func() {
			p.sick()
			p.locks.Link.Restore()
		})
	case "lose":
		p.locks.Link.Lose(s.N)
		p.trouble(s.For, "replies lost")
		time.AfterFunc(s.For, func() { p.locks.Link.Lose(0) })
	case "kill":
		p.kill(s)
	case "close":
		p.close(s)
	case "remove":
		p.tasks.Go(func() { p.remove(s) })
	case "run now":
		p.tasks.Go(p.byHand)
	case "jump":
		p.ahead.Add(int64(time.Duration(s.N) * time.Millisecond))
		p.trouble(0, "jump")
	case "call":
		for range s.N {
			p.calls.Go(func() { p.call(p.host) })
		}
	case "host sleeps":
		p.asleep.Store(true)
		time.AfterFunc(s.For, func() { p.asleep.Store(false) })
	case "resign":
		if p.elector != nil {
			p.resign()
		}
	case "revoke":
		p.tasks.Go(func() { p.revoke(s) })
	case "storm":
		p.storm(s)
	case "far":
		p.far(s)
	case "empty in turn":
		p.tasks.Go(p.emptyInTurn)
	case "short outage":
		p.shortOutage(s)
	case "no nodes":
		for i := range p.nodes {
			p.Strike(p.nodes, sim.Step{Do: "down", Who: i, For: s.For})
		}
		p.trouble(s.For, "no nodes")
	}
}

// shortOutage makes all nodes, or a quorum of them, unavailable for s.For.
func (w *world) shortOutage(s sim.Step) {
	nodes, hangs, what := len(w.nodes), false, "short outage of all nodes"
	switch s.N {
	case 1:
		nodes, what = len(w.nodes)/2+1, "short outage of a quorum"
	case 2:
		nodes, hangs, what = len(w.nodes)/2+1, true, "short outage of a quorum, of which a node hangs"
	}

	w.Count(what)
	for i := range nodes {
		do := "down"
		if hangs && i == 0 {
			do = "hang"
		}
		w.Strike(w.nodes, sim.Step{Do: do, Who: i, For: s.For})
	}
	w.trouble(s.For, "short outage")
}

// storm makes messages of all processes late and lost for a time.
func (w *world) storm(s sim.Step) {
	w.trouble(s.For, "storm")
	w.blow(1, 0)
	time.AfterFunc(s.For, func() { w.blow(-1, 0) })
}

// far makes each request of all processes take nearly the node timeout.
func (w *world) far(s sim.Step) {
	w.trouble(s.For, "far")
	w.blow(0, 1)
	time.AfterFunc(s.For, func() { w.blow(0, -1) })
}

// nodeTimeout returns how long a process waits for a node.
func (w *world) nodeTimeout() time.Duration { return min(w.ttl/10, time.Second) }

// emptyInTurn restarts all nodes empty, one after the other. Each one restarts when the node before votes again.
func (w *world) emptyInTurn() {
	w.Count("empty in turn")
	for i := range w.nodes {
		w.mu.Lock()
		over := w.over
		w.mu.Unlock()
		if over {
			return
		}
		s := sim.Step{Do: "restart empty", Who: i, For: w.ttl}
		w.forget(i)
		w.Strike(w.nodes, s)
		w.struck(s)
		time.Sleep(w.ttl + 2*time.Second)
	}
}

func (w *world) blow(storms, distant int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.storms += storms
	w.distant += distant
	for _, p := range w.replicas {
		if p != nil {
			w.network(p)
		}
	}
}

// network applies the present state of the network to the link of a process. w.mu must be held.
func (w *world) network(p *process) {
	p.locks.Link.OnRequest(nil)
	if w.distant > 0 {
		way := w.nodeTimeout() * 9 / 20
		p.locks.Link.OnRequest(func(redis.Cmder) testutil.Action { return testutil.Action{Delay: way, ReplyDelay: way} })
		return
	}

	of := w.Trial
	if w.storms == 0 {
		of = &sim.Trial{Program: sim.Program{Seed: w.Seed, Plan: map[string]int{"delay": w.Is("delay")}}}
	}
	of.Network(p.locks.Link, uint64(1+w.storms+16*p.number))
}

// revoke revokes the lease of the run or of the leader.
func (p *process) revoke(s sim.Step) {
	key := core.Key("cron", "service", "job", "run")
	if p.elector != nil && s.N == 0 {
		key = core.Key("leader", "group")
	}
	state, err := p.locks.Inspect(p.host, key)
	if err == nil && state.Holder != nil {
		p.trouble(0, "revoked")
		_, _ = admin.Revoke(p.host, p.locks.Locker, key, state.Holder.Token)
	}
}
