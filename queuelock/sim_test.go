package queuelock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/internal/goscript"
	"github.com/lockkit/lockkit/internal/sim"
	"github.com/lockkit/lockkit/testutil"
	"github.com/lockkit/lockkit/testutil/locktest"
)

// TestSimulation runs asynq's client, servers and handlers, and Schedulers, on embedded nodes: one to four processes,
// tasks of all kinds, and faults. The oracle judges by the package document; see sim_oracle_test.go.
func TestSimulation(t *testing.T) {
	sim.CollectLess(t)
	sim.Campaign{Draw: drawSim, Run: runSim, MustReach: simReaches}.Test(t)
}

// simReaches are the events that a hundred programs must reach.
var simReaches = slices.Concat(simTasks, simFaults, simAims, []string{
	"duplicate_suppressed", "contended", "unavailable", "cooldown", "no_key", "nil_after_cancel", "archived_unrun",
	"lease_abandoned", "completion_unrecorded", "completion_refused", "foreign_id", "tick_missed",
	"quiet", "waits in place", "waits for locks", "no place", "last attempt waits", "key rests", "record",
	"recovered", "delivered twice", "archived", "tick", "lost while waiting", "lease lost", "overlap after a loss", "taken back while waiting",
	"runs again after the retention", "a backlog is given back",
	"one UUID of two tasks", "given back further out", "stays in its worker",
	"callback panics", "callback is slow",
})

const (
	simSteps  = 45 * time.Second // the time in which steps happen
	simPeriod = 15 * time.Second // between ticks
	simSettle = 15 * time.Minute // the time in which all tasks must end
	simTTL    = 6 * time.Second
)

// The values that the numbers of the plan select.
var (
	simWorkers    = []int{4, 1, 2, 8, 9}
	simWaiters    = [][]Option{nil, {WithWaiters(0)}, {WithWaiters(1)}, {WithWaiters(9)}}
	simGraces     = []time.Duration{2 * time.Minute, 0, 5 * time.Second, 12 * time.Second}
	simRetentions = []time.Duration{8 * time.Hour, 12 * time.Second, 2 * time.Minute}
	simPolls      = []time.Duration{2 * time.Second, time.Second, 3 * time.Second, 10 * time.Millisecond}
)

// simFaults are the faults of nodes, asynq's Redis, processes and keys.
var simFaults = []string{
	"down", "hang", "slow", "restart", "restart empty", "flush", "promote", "drop replies", "step clock", "blackout",
	"cut locks", "cut asynq", "asynq forgets", "kill", "shutdown", "close early", "hold", "complete", "cancel", "lose completions", "set clock",
	"asynq down", "revoke", "end contexts",
}

// simAims are faults that strike a process, or one of its deliveries, at the next moment of a kind.
var simAims = []string{"aim kill", "aim cut locks", "aim cut asynq", "aim lose", "aim cancel", "aim shutdown", "aim revoke", "aim end contexts"}

// simMoments are these moments. N of a step selects one.
var simMoments = []string{"acquire", "identity granted", "key granted", "returned", "completed", "waits", "release", "tick"}

func drawSim(r *rand.Rand) sim.Program {
	p := sim.Program{Plan: map[string]int{
		"processes": sim.Pick(r, 0, 1, 1, 2, 2, 3), "workers": r.IntN(len(simWorkers)), "waiters": r.IntN(len(simWaiters)), "keys": sim.Pick(r, 0, 1, 2, 3, 5, 8),
		"grace": sim.Pick(r, 0, 1, 1, 2, 2, 2, 3, 3), "retention": r.IntN(len(simRetentions)), "poll": sim.Pick(r, 0, 0, 1, 2),
		"ticks": r.IntN(2), "queues": r.IntN(2), "optional": r.IntN(2), "base": r.IntN(2),
	}}

	for n := 30 + r.IntN(5); n > 0; n-- {
		p.Steps = append(p.Steps, drawTask(r, p.Plan["keys"]))
	}
	if r.IntN(2) == 0 {
		p.Plan["skew"] = r.IntN(4000)
	}

	if r.IntN(4) == 0 {
		return p // a quiet program: no failure is excused
	}

	if r.IntN(3) == 0 {
		p.Plan["delay"], p.Plan["late"], p.Plan["lost"] = r.IntN(60), r.IntN(30), r.IntN(8)
	}
	if r.IntN(3) == 0 {
		p.Plan["asynq lost"] = r.IntN(15)
	}
	if r.IntN(20) == 0 {
		p.Plan["poll"], p.Plan["workers"] = len(simPolls)-1, 1 // as often as the limiter allows
	}

	for _, what := range sim.Some(r, slices.Concat(simFaults, simAims)) {
		for n := 1 + r.IntN(3); n > 0 && r.IntN(3) > 0; n-- {
			p.Steps = append(p.Steps, drawFault(r, what))
		}
	}
	p.Plan["callbacks"] = sim.Pick(r, 0, 0, 1, 2)
	return p
}

func drawFault(r *rand.Rand, what string) sim.Step {
	s := sim.Step{At: time.Duration(r.Int64N(int64(simSteps))), Do: what, Who: r.IntN(12), For: sim.Between(r, 500*time.Millisecond, 25*time.Second)}
	switch what {
	case "slow", "step clock":
		s.N = r.IntN(1500)
	case "drop replies":
		s.N = 1 + r.IntN(5)
	case "cut asynq", "lose completions", "asynq down":
		s.For = sim.Between(r, time.Second, 80*time.Second)
	case "hold":
		s.For = sim.Between(r, time.Second, 20*time.Second)
	case "set clock":
		s.N = r.IntN(9000)
	}
	if strings.HasPrefix(what, "aim") {
		s.N = r.IntN(len(simMoments))
	}
	return s
}

// A simulation is one run of a program.
type simulation struct {
	*sim.Trial
	simOracle
	queue      *testutil.Node
	locks      *locktest.Locker // of a process that runs no tasks
	client     *asynq.Client
	inspector  *asynq.Inspector
	background sync.WaitGroup
	producers  sync.WaitGroup
	processes  []*simProcess // by place; guarded by the oracle's mutex
}

func runSim(t *sim.Trial) {
	s := &simulation{Trial: t, queue: testutil.NewNodes(t, 1)[0]}
	goscript.Use(s.queue, findPoll)
	s.simOracle.begin(s)
	nodes := testutil.NewNodes(t, 3)
	sim.ByModel(t.Seed, nodes...)
	s.locks = locktest.NewOn(t, nodes, core.TTL(simTTL), core.WithClockWindow(simTTL/10))

	c := s.dialQueue()
	s.client, s.inspector = asynq.NewClientFromRedisClient(c), asynq.NewInspectorFromRedisClient(c)
	s.queue.OnRequest(s.archives)
	s.processes = make([]*simProcess, 1+t.Is("processes"))
	for place := range s.processes {
		s.start(place)
	}

	t.Follow(simSteps+10*time.Second, s.do)
	sim.Heal(append(nodes, s.queue))
	for place := range s.processes {
		s.process(place).mend()
	}

	s.producers.Wait()
	s.settles()
	s.locked(func() { s.over = true })
	for place := range s.processes {
		s.process(place).stop()
	}
	s.background.Wait()
	s.verdict()
}

func (s *simulation) dialQueue() *redis.Client {
	return s.queue.ClientWith(func(o *redis.Options) { o.PoolSize = 500 })
}

// process returns the process at a place.
func (s *simulation) process(place int) *simProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[place%len(s.processes)]
}

// do executes a step.
func (s *simulation) do(step sim.Step) {
	p := s.process(step.Who)
	switch step.Do {
	case "restart empty", "flush":
		s.forgets(s.locks.Nodes, step.Who%len(s.locks.Nodes))
	case "step clock":
		step.N -= 750
		forget := func() { s.locked(func() { clear(s.rests) }) } // cooldowns depend on the nodes' clocks
		forget()
		time.AfterFunc(step.For, forget)
	}

	if s.Strike(s.locks.Nodes, step) {
		return
	}
	node := s.locks.Nodes[step.Who%len(s.locks.Nodes)]
	switch step.Do {
	case "blackout":
		for _, n := range s.locks.Nodes {
			if n != node {
				n.Down()
				time.AfterFunc(step.For, n.Up)
			}
		}
	case "asynq down":
		s.loses(step.For)
		s.queue.Down()
		time.AfterFunc(step.For, s.queue.Up)
	case "asynq forgets":
		s.forgetsDelivery(s.someDelivery(p, step.Who))
	case "hold", "complete":
		s.background.Go(func() { s.outsider(step) })
	case "lose completions":
		p.loseCompletions(step.For)
	case "set clock":
		p.set.Store(true)
		p.skew.Store(int64(time.Duration(step.N-4500) * time.Millisecond))
	default:
		if what, aims := strings.CutPrefix(step.Do, "aim "); aims {
			p.aim(simMoments[step.N%len(simMoments)], what, step.For)
		} else if slices.Contains(simTasks, step.Do) {
			s.producers.Go(func() { s.produce(s.newTask(step)) })
		} else {
			p.suffer(step.Do, step.For, s.someDelivery(p, step.Who))
		}
	}
}

// outsider holds or completes a key of tasks.
func (s *simulation) outsider(step sim.Step) {
	key := simKey(step.Who % max(s.Is("keys"), 1))
	lease, err := s.locks.TryAcquire(s.Context(), key, core.Retention(15*time.Second))
	if err != nil {
		return
	}
	if step.Do == "complete" {
		done := func(long time.Duration) { s.locked(func() { s.doneTil[key] = time.Now().Add(long) }) }
		// Complete repeats its requests, and the retention counts from when a node has the record.
		done(simSettle)
		_ = lease.Complete(s.Context(), nil)
		done(15*time.Second + slack)
		return
	}
	leave := s.enters(&simDelivery{who: "somebody else", ctx: lease.Context(), work: lease.Context()}, key, lease.FencingToken())
	select {
	case <-time.After(step.For):
	case <-lease.Context().Done():
	}
	leave()
	_ = lease.Release(s.Context())
}

// forgetsDelivery makes asynq deliver a task once more, as after a failover of its Redis.
func (s *simulation) forgetsDelivery(d *simDelivery) {
	if d == nil {
		return
	}
	s.locked(func() { d.task.doubled = true })
	queue := "asynq:{" + d.task.queue + "}:"
	if v, _ := s.queue.Exec("LREM", queue+"active", 0, d.id); v != 1 {
		return
	}
	for _, args := range [][]any{{"ZREM", queue + "lease", d.id}, {"HSET", queue + "t:" + d.id, "state", "pending"}, {"LPUSH", queue + "pending", d.id}} {
		_, _ = s.queue.Exec(args...)
	}
	s.Count("delivered twice")
}

// settles waits until asynq has no task left to run.
func (s *simulation) settles() {
	for began := time.Now(); ; time.Sleep(2 * time.Second) {
		left := s.unfinished()
		if left <= 0 {
			return
		}
		if time.Since(began) > simSettle {
			s.Violation("%d tasks have not ended", left)
			return
		}
	}
}

// unfinished returns how many tasks asynq has yet to run, plus the deliveries that have not ended.
func (s *simulation) unfinished() (n int) {
	for _, queue := range simQueues {
		for list, size := range map[string]string{"pending": "LLEN", "active": "LLEN", "retry": "ZCARD", "scheduled": "ZCARD"} {
			v, _ := s.queue.Exec(size, "asynq:{"+queue+"}:"+list)
			if k, ok := v.(int); ok {
				n += k
			}
		}
	}
	return n + s.running()
}

// delivered returns the delivery that a context belongs to, or nil.
func delivered(ctx context.Context) *simDelivery {
	d, _ := ctx.Value(simDeliveryKey{}).(*simDelivery)
	return d
}

type simDeliveryKey struct{}

// verdict judges how all tasks have ended.
func (s *simulation) verdict() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed {
		return
	}
	for _, t := range s.tasks {
		v, _ := s.queue.Exec("HGET", "asynq:{"+t.queue+"}:t:"+t.id, "state")
		if msg, _ := s.queue.Exec("HGET", "asynq:{"+t.queue+"}:t:"+t.id, "msg"); v != nil && !t.in(fmt.Sprint(msg)) {
			v = nil
		}
		switch state := fmt.Sprint(v); state {
		case "<nil>", "completed":
			if !s.done[t.identity()] {
				s.Violation("%s is gone, and no handler has succeeded", t.id)
			}
		case "archived":
			s.Count("archived")
			if !t.mayArchive {
				s.Violation("%s is archived", t.id)
			}
		default:
			s.Violation("%s is %s", t.id, state)
		}
	}
	if s.Is("ticks") > 0 {
		s.judgeTicks()
	}
}

// judgeTicks judges that each tick was enqueued if a process was alive when it was due.
func (s *simulation) judgeTicks() {
	skew := 5 * time.Second
	for at := s.Began.Truncate(simPeriod).Add(simPeriod); at.Before(s.Began.Add(simSteps)); at = at.Add(simPeriod) {
		id := ID("tick", "simulation", "tick", at.UTC().Format(time.RFC3339)).Value().(string)
		if s.tasks["default/"+id+"/-1"] != nil {
			continue
		}
		missed, some := false, false
		for _, p := range s.alive {
			missed = missed || slices.ContainsFunc(p.missed, func(t time.Time) bool { return t.Sub(at).Abs() < simPeriod+2*skew })
			some = some || p.up.Before(at.Add(-skew)) && (p.down.IsZero() || p.down.After(at.Add(simPeriod+skew)))
		}
		switch {
		case missed:
			s.Count("excused: a tick was missed")
		case some:
			s.Violation("no task of the tick at %v", at.Sub(s.Began))
		}
	}
}
