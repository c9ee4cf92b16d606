package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/internal/race"
	"github.com/lockkit/lockkit/testutil"
)

// mainEnv is the variable that makes a process of the test the playground.
const mainEnv = "LOCKKIT_PLAYGROUND_TEST"

// TestMain makes processes of the test the replicas of a playground.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" || os.Getenv(mainEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// open starts a playground on embedded nodes.
func open(t *testing.T) *playground {
	t.Helper()
	t.Setenv("PATH", t.TempDir()) // without a redis-server
	p, err := newPlayground(t.Context(), Unsafe{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func mustDo(t *testing.T, p *playground, c Command) {
	t.Helper()
	if err := p.do(c); err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
}

func mustRefuse(t *testing.T, p *playground, c Command) {
	t.Helper()
	err := p.do(c)
	if _, ok := errors.AsType[refusal](err); !ok {
		t.Errorf("%+v: %v, want a refusal", c, err)
	}
}

// becomes waits for a state of the playground.
func becomes(t *testing.T, p *playground, what string, is func(State) bool) {
	t.Helper()
	testutil.Await(t, what, func() bool { return is(p.state()) })
}

func nodeBecomes(t *testing.T, p *playground, i int, what string, is func(NodeState) bool) {
	t.Helper()
	becomes(t, p, fmt.Sprintf("node %d %s", i, what), func(s State) bool { return is(s.Nodes[i]) })
}

func votes(n NodeState) bool {
	return n.State == up && n.Votes && n.Guard == "voting" && n.Breaker == "closed"
}
func quarantined(n NodeState) bool { return !n.Votes && strings.HasPrefix(n.Guard, "quarantined") }

func canPause() bool { return runtime.GOOS != "windows" }

// Each button does what it says, and no button breaks a promise of the locks.
func TestButtons(t *testing.T) {
	race.SkipSweep(t) // as in TestRun
	p := open(t)
	becomes(t, p, "everything moves", func(s State) bool {
		leaders := 0
		for _, r := range s.Replicas {
			if r.Leader {
				leaders++
			}
		}
		return s.check() == nil && leaders == 1 && s.Wait.P50 > 0 && votes(s.Nodes[0]) && votes(s.Nodes[4])
	})
	t.Run("replicas", func(t *testing.T) { replicaButtons(t, p) })
	t.Run("nodes", func(t *testing.T) { nodeButtons(t, p) })
	t.Run("network", func(t *testing.T) { networkButtons(t, p) })
	t.Run("load", func(t *testing.T) { loadButtons(t, p) })
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if err := p.state().check(); err != nil {
		t.Error(err)
	}
	mustEnd(t, p)
}

func mustEnd(t *testing.T, p *playground) {
	t.Helper()
	if err := p.do(Command{Do: "reset"}); !errors.Is(err, errEnding) {
		t.Errorf("a command at the end: %v", err)
	}
}

func replicaButtons(t *testing.T, p *playground) {
	n := p.board.end()
	told := func(replica, kind string) {
		t.Helper()
		if _, err := p.board.await(t.Context(), n, isOf(replica, "", kind)); err != nil {
			t.Fatal(err)
		}
	}
	mustDo(t, p, Command{Do: "kill", Replica: "a"})
	told("a", isKilled)
	if s := p.state().Replicas[0]; s.State != down || s.Leader || len(s.Held)+len(s.Waiting) > 0 {
		t.Errorf("killed: %+v", s)
	}
	mustRefuse(t, p, Command{Do: "kill", Replica: "a"})
	mustRefuse(t, p, Command{Do: "pause", Replica: "a"})
	mustRefuse(t, p, Command{Do: "resume", Replica: "a"})
	mustDo(t, p, Command{Do: "restart", Replica: "a"})
	told("a", isStarted)

	mustDo(t, p, Command{Do: "restart", Replica: "b"})
	told("b", isLeft)
	told("b", isStarted)

	mustDo(t, p, Command{Do: "skew", Replica: "c", Ms: 300})
	told("c", isSkewed)
	if s := p.state().Replicas[2]; s.SkewMs != 300 {
		t.Errorf("skewed: %+v", s)
	}
	if err := p.do(Command{Do: "skew", Replica: "c", Ms: 1e300}); !errors.Is(err, errMalformed) {
		t.Errorf("a clock beyond all time: %v", err)
	}
	if !canPause() {
		return
	}
	mustDo(t, p, Command{Do: "pause", Replica: "c"})
	told("c", isPaused)
	mustRefuse(t, p, Command{Do: "pause", Replica: "c"})
	becomes(t, p, "what c holds runs out", func(s State) bool { return s.Replicas[2].State == paused && len(s.Replicas[2].Held) == 0 })
	mustDo(t, p, Command{Do: "resume", Replica: "c"})
	told("c", isResumed)
	n = p.board.end()
	told("c", isGrant)
}

func nodeButtons(t *testing.T, p *playground) {
	node := func(do string, i int) Command { return Command{Do: do, Node: &i} }
	mustDo(t, p, node("node_kill", 4))
	mustRefuse(t, p, node("node_kill", 4))
	mustRefuse(t, p, node("node_flush", 4))
	mustRefuse(t, p, node("node_pause", 4))
	nodeBecomes(t, p, 4, "is down, and left alone", func(n NodeState) bool { return n.State == down && !n.Votes && n.Breaker == "open" })

	quarantines(t, p, node("node_restart_empty", 0))
	quarantines(t, p, node("node_restart", 4))
	nodeBecomes(t, p, 0, "votes", votes)
	nodeBecomes(t, p, 4, "votes", votes)

	quarantines(t, p, node("node_flush", 1))
	mustDo(t, p, node("node_pause", 2))
	mustRefuse(t, p, node("node_pause", 2))
	nodeBecomes(t, p, 2, "is paused", func(n NodeState) bool { return n.State == paused && !n.Votes })
	mustDo(t, p, node("node_resume", 2))
	mustRefuse(t, p, node("node_resume", 2))
	nodeBecomes(t, p, 2, "votes", votes)
	nodeBecomes(t, p, 1, "votes", votes)
	for i, at := range p.nodes.forgot {
		if lost := !at.IsZero(); lost != (i < 2) {
			t.Errorf("node %d has lost its memory: %v", i, lost)
		}
	}
	if !p.nodes.forgotten(p.began) || p.nodes.forgotten(time.Now()) {
		t.Error("the memory was lost at another time")
	}
}

// quarantines waits for the quarantine that a command begins. On a busy machine, a quarantine may end before the test
// sees it. Then the command is repeated.
func quarantines(t *testing.T, p *playground, c Command) {
	t.Helper()
	var done time.Time
	testutil.Await(t, fmt.Sprintf("node %d is in quarantine after %s", *c.Node, c.Do), func() bool {
		if time.Since(done) > 2*ttl {
			mustDo(t, p, c)
			done = time.Now()
		}
		return quarantined(p.state().Nodes[*c.Node])
	})
}

func networkButtons(t *testing.T, p *playground) {
	node := func(do, replica string, ms float64) Command {
		return Command{Do: do, Node: new(3), Replica: replica, Ms: ms}
	}
	mustRefuse(t, p, node("node_mend", "", 0))
	mustDo(t, p, node("node_cut", "a", 0))
	mustRefuse(t, p, node("node_cut", "a", 0))
	s := p.state()
	if s.Nodes[3].State != "cut" || fmt.Sprint(s.Replicas[0].Cut, s.Replicas[1].Cut) != "[3] []" {
		t.Errorf("cut from a: %+v", s)
	}
	mustDo(t, p, node("node_cut", "", 0))
	nodeBecomes(t, p, 3, "is cut off", func(n NodeState) bool { return n.State == "cut" && !n.Votes })
	mustDo(t, p, node("node_mend", "", 0))
	nodeBecomes(t, p, 3, "votes", votes)

	if err := p.do(node("node_slow", "", 0)); !errors.Is(err, errMalformed) {
		t.Errorf("slow by nothing: %v", err)
	}
	mustDo(t, p, node("node_slow", "", 100))
	nodeBecomes(t, p, 3, "is slow", func(n NodeState) bool { return n.State == "slow" && n.LatencyMs > 50 })
	mustDo(t, p, node("node_mend", "", 0))
	nodeBecomes(t, p, 3, "is quick", func(n NodeState) bool { return n.State == up && n.LatencyMs < 50 })
}

func loadButtons(t *testing.T, p *playground) {
	before := p.state().Counters
	mustDo(t, p, Command{Do: "burst_http", N: 40})
	mustDo(t, p, Command{Do: "burst_tasks", N: 10})
	becomes(t, p, "the burst is over", func(s State) bool {
		c := s.Counters
		return c.Updates >= before.Updates+20 && c.Completed >= before.Completed+10 && c.LostWithout > 0 && c.LostWith == 0
	})
	off, on := true, false
	mustDo(t, p, Command{Do: "unsafe", Fencing: &off})
	mustRefuse(t, p, Command{Do: "unsafe", Fencing: &off})
	if s := p.state(); s.Unsafe != (Unsafe{Fencing: true}) {
		t.Errorf("%+v", s.Unsafe)
	}
	mustDo(t, p, Command{Do: "unsafe", Fencing: &on})
}

// Bursts are bounded, and so are the requests and tasks that wait to be sent.
func TestBursts(t *testing.T) {
	p := idle(t)
	p.load = newLoad(p) // without clients
	for _, do := range []string{"burst_http", "burst_tasks"} {
		for _, n := range []int{0, -1, mostBurst + 1} {
			if err := p.do(Command{Do: do, N: n}); !errors.Is(err, errMalformed) {
				t.Errorf("%s of %d: %v", do, n, err)
			}
		}
		mustDo(t, p, Command{Do: do, N: mostBurst})
		mustRefuse(t, p, Command{Do: do, N: mostBurst})
	}
	if len(p.load.requests) != 2*mostBurst || len(p.load.tasks) != mostBurst {
		t.Errorf("%d requests and %d tasks wait", len(p.load.requests), len(p.load.tasks))
	}
}

// A task counts even if its enqueueing has failed, because it may be in the queue all the same. So no more tasks are
// completed than counted.
func TestTasksAreCountedFirst(t *testing.T) {
	p := idle(t)
	nowhere := redis.NewClient(&redis.Options{Addr: "nowhere", MaxRetries: -1, DisableIdentity: true, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the answer was lost")
	}})
	defer nowhere.Close()
	p.queue, p.load = &queue{client: asynq.NewClientFromRedisClient(nowhere)}, newLoad(p)
	ctx, cancel := context.WithCancel(t.Context())
	p.load.all.Go(func() { p.load.enqueue(ctx) })
	p.load.tasks <- struct{}{}
	if e, err := p.board.await(t.Context(), 0, isOf("", "", isError)); err != nil || !strings.Contains(e.Text, "the answer was lost") {
		t.Errorf("%+v, %v", e, err)
	}
	cancel()
	p.load.wait()
	if p.tally.Tasks != 1 {
		t.Errorf("%d tasks, want 1", p.tally.Tasks)
	}
}

// When violations are forgotten, the counters that show them are corrected as well.
func TestResetOfCounters(t *testing.T) {
	p := idle(t)
	p.tally.forgotten = func(time.Time) bool { return false }
	for range 2 {
		p.tell(Event{Kind: isTask, Key: "1", Text: "completed"})
		p.tell(Event{Kind: isWrite, Text: "stale"})
	}
	if p.tally.Again != 1 || p.tally.StaleAccepted != 2 || p.judge.verdict().OK {
		t.Errorf("%+v, %+v", p.tally.Counters, p.judge.verdict())
	}
	p.reset()
	if p.tally.Again+p.tally.StaleAccepted != 0 || p.tally.Completed != 1 || !p.judge.verdict().OK {
		t.Errorf("after the reset %+v, %+v", p.tally.Counters, p.judge.verdict())
	}
}

// With the guard and fencing, the scenarios violate nothing. Without them, the verdict is red.
func TestScenarios(t *testing.T) {
	race.SkipSweep(t)
	if !canPause() {
		t.Skip("this system cannot pause processes")
	}
	p := open(t)
	play := func(name string) State {
		t.Helper()
		n := p.board.end()
		mustDo(t, p, Command{Do: "scenario", Name: name})
		mustRefuse(t, p, Command{Do: "scenario", Name: name})
		_, err := p.board.await(t.Context(), n, func(e Event) bool { return e.Kind == isScenario && e.Text == "is over" })
		if err != nil {
			t.Fatal(err)
		}
		becomes(t, p, name+" is over", func(s State) bool { return s.Scenario == "" })
		return p.state()
	}

	off, on := true, false
	if s := play("guard"); !s.Verdict.OK {
		t.Errorf("guard, with the guard: %s", s.Verdict.Text)
	}
	if s := play("fence"); !s.Verdict.OK || s.Counters.StaleRefused == 0 {
		t.Errorf("fence, with fencing: %s; %d stale writes refused", s.Verdict.Text, s.Counters.StaleRefused)
	}

	mustDo(t, p, Command{Do: "unsafe", Fencing: &off})
	if s := play("fence"); s.Verdict.OK || s.Counters.StaleAccepted == 0 {
		t.Errorf("fence, without fencing: %+v", s)
	}

	mustDo(t, p, Command{Do: "unsafe", Guard: &off, Fencing: &on})
	mustDo(t, p, Command{Do: "reset"})
	becomes(t, p, "the replicas are up", func(s State) bool {
		return s.Verdict.OK && s.Replicas[0].State == up && s.Replicas[1].State == up && s.Nodes[0].Guard == "off"
	})

	// The three nodes forget both the lease and the record of the latest tick. The verdict is the violation that is
	// seen first. On a busy machine, a holder may notice its loss before anybody else is granted the key.
	s := play("guard")
	for plays := 1; s.Verdict.OK && plays < 10; plays++ {
		s = play("guard")
	}
	if twice := strings.HasPrefix(s.Verdict.Text, "tick ") && strings.Contains(s.Verdict.Text, " ran on "); s.Verdict.OK ||
		!twice && !strings.Contains(s.Verdict.Text, "overlapping leases") {
		t.Errorf("guard, without the guard: %+v", s.Verdict)
	}

	mustDo(t, p, Command{Do: "unsafe", Guard: &on})
	mustDo(t, p, Command{Do: "reset"})
	if s := play("guard"); !s.Verdict.OK {
		t.Errorf("guard, with the guard again: %s", s.Verdict.Text)
	}
}

// A playground that runs by itself stays green, and everything moves.
func TestRun(t *testing.T) {
	race.SkipSweep(t) // eight processes with the race detector leave a busy machine no time for their leases
	t.Setenv("PATH", t.TempDir())
	if err := run(t.Context(), options{addr: "127.0.0.1:0", length: 4 * time.Second, seed: 1}); err != nil {
		t.Error(err)
	}
}

// If redis-server's files cannot be written, the error says how to choose another directory.
func TestNoDirectory(t *testing.T) {
	if !testutil.ServerAvailable() {
		t.Skip("embedded nodes need none")
	}
	t.Setenv("TMPDIR", t.TempDir()+"/missing")
	if runtime.GOOS == "windows" {
		t.Skip("it is another variable")
	}
	if _, err := newPlayground(t.Context(), Unsafe{}); err == nil || !strings.Contains(err.Error(), "set TMPDIR") {
		t.Error(err)
	}
}
