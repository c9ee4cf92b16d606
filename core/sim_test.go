package core

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/testutil"
)

var simSeeds = flag.Int("sim.seeds", 8, "how many seeds TestSimulation runs")

// TestSimulation runs the real client and scripts on embedded nodes, in bubbles, under faults drawn from a
// seed: lost, late and duplicated messages; nodes that are down, hung, slow, restarted with and without
// their memory, flushed, promoted, with clocks that step; paused and dying clients. Each seed draws its own
// mixture, because a run with everything at once never reaches some states. SEED=n runs that seed alone.
// Goroutines that are ready at the same instant run in any order, so a seed fixes the faults, not every step.
func TestSimulation(t *testing.T) {
	if s := os.Getenv("SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Log("\n" + simulate(t, seed))
		return
	}
	seeds := make(chan uint64)
	var total struct {
		sync.Mutex
		counts
	}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := range seeds {
				t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
					defer func() {
						if t.Failed() {
							t.Logf("again: SEED=%d go test ./core -run TestSimulation -count=1 -v", seed)
						}
					}()
					simulate(t, seed, func(c counts) {
						total.Lock()
						defer total.Unlock()
						total.add(c)
					})
				})
			}
		})
	}
	for seed := range uint64(*simSeeds) {
		seeds <- seed
	}
	close(seeds)
	workers.Wait()
	t.Logf("%d seeds: %d", *simSeeds, total.counts)
	if *simSeeds >= 100 && (total.grants == 0 || total.losses == 0 || total.completions == 0 || total.dones == 0 || total.healed == 0) {
		t.Errorf("the simulation has gone blind: %+v", total.counts)
	}
}

// counts shows that a simulation reaches what it is for.
type counts struct{ grants, losses, completions, dones, healed int }

func (c *counts) add(d counts) {
	c.grants += d.grants
	c.losses += d.losses
	c.completions += d.completions
	c.dones += d.dones
	c.healed += d.healed
}

// A mixture is what one seed draws.
type mixture struct {
	nodes, processes int
	ttl              time.Duration
	window           bool
	records          bool // completions are used, and nodes keep their memory
	delay            time.Duration
	tail, loss, twin float64 // probability per message of a long delay, of loss, of arriving twice
	hold, think      time.Duration
	every            time.Duration // mean time between faults
	faults           []string
}

func draw(r *rand.Rand) mixture {
	coin := func() float64 { return float64(r.IntN(2)) }
	m := mixture{
		nodes:     []int{1, 2, 3, 3, 3, 4, 5}[r.IntN(7)],
		processes: 2 + r.IntN(3),
		ttl:       []time.Duration{2 * time.Second, 4 * time.Second}[r.IntN(2)],
		window:    r.IntN(4) > 0,
		records:   r.IntN(2) == 0,
		delay:     logUniform(r, 100*time.Microsecond, 100*time.Millisecond),
		tail:      0.1 * r.Float64() * coin(),
		loss:      0.1 * r.Float64() * coin(),
		twin:      0.05 * r.Float64() * coin(),
		hold:      logUniform(r, 10*time.Millisecond, 6*time.Second),
		think:     logUniform(r, 2*time.Millisecond, time.Second),
		every:     logUniform(r, 100*time.Millisecond, 5*time.Second),
	}
	kinds := []string{"down", "hang", "slow", "restart", "pause"}
	if m.window {
		kinds = append(kinds, "step", "shift")
	}
	if !m.records {
		kinds = append(kinds, "empty", "empty", "flush", "promote", "rolling")
	}
	for _, k := range kinds {
		if r.IntN(2) == 0 {
			m.faults = append(m.faults, k)
		}
	}
	return m
}

func logUniform(r *rand.Rand, lo, hi time.Duration) time.Duration {
	return time.Duration(float64(lo) * math.Pow(float64(hi)/float64(lo), r.Float64()))
}

// A sim is one run.
type sim struct {
	mixture
	*world
	seed    uint64
	history testutil.History
	fences  fencedStore
	end     time.Time
	mu      sync.Mutex
	paused  []time.Time // by process: until when
	counts  counts
}

const simTime = 20 * time.Second

func simulate(t *testing.T, seed uint64, report ...func(counts)) string {
	t.Helper()
	var text string
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := &sim{mixture: draw(r), seed: seed, end: time.Now().Add(simTime)}
		s.world = &world{t, testutil.Embedded(t, s.nodes())}
		s.paused = make([]time.Time, s.processes)
		var actors sync.WaitGroup
		for i := range s.processes {
			p := s.process(s.options()...)
			s.connect(p, i)
			for line := range 2 {
				actors.Go(func() { s.client(p, i, line) })
			}
		}
		actors.Go(func() { s.nemesis(r) })
		actors.Wait()
		s.recovers()
		if err := s.history.Check(); err != nil {
			t.Errorf("%+v\n%v\n%s", s.mixture, err, s.history.Report())
		}
		text = fmt.Sprintf("%+v\n%+v\n%s", s.mixture, s.counts, s.history.Report())
		for _, f := range report {
			f(s.counts)
		}
	})
	return text
}

func (s *sim) nodes() int { return s.mixture.nodes }

func (s *sim) options() []Option {
	window := time.Duration(0)
	if s.window {
		window = s.ttl / 10
	}
	return []Option{WithTTL(s.ttl), WithRestartGuard(true), WithObserver(s), WithClockWindow(window)}
}

// Start counts what only an observer sees.
func (s *sim) Start(ctx context.Context, op Op) (context.Context, func(Outcome)) {
	return ctx, func(out Outcome) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if op.Kind == OpHold && errors.Is(out.Err, ErrLost) {
			s.counts.losses++
		}
		for _, n := range out.Nodes {
			if n.Verdict == Healed {
				s.counts.healed++
			}
		}
	}
}

// connect gives the links of process i fates drawn from the seed.
func (s *sim) connect(p *process, i int) {
	random := rand.New(rand.NewPCG(s.seed, uint64(1000+i)))
	var mu sync.Mutex
	p.e.jitter = func(n int64) int64 {
		mu.Lock()
		defer mu.Unlock()
		return random.Int64N(n)
	}
	for j, k := range p.links {
		r := rand.New(rand.NewPCG(s.seed, uint64(100*(i+1)+j)))
		k.decide(func(*script, []any) fate { // called with the link's lock
			f := fate{delay: s.latency(r), replyDelay: s.latency(r), lose: r.Float64() < s.loss, loseReply: r.Float64() < s.loss, twice: r.Float64() < s.twin}
			if wait := time.Until(s.pausedUntil(i)); wait > 0 {
				f.delay += wait
			}
			return f
		})
	}
}

func (s *sim) latency(r *rand.Rand) time.Duration {
	d := time.Duration(r.ExpFloat64() * float64(s.delay))
	if r.Float64() < s.tail {
		d += time.Duration(r.ExpFloat64() * 0.7 * float64(s.ttl))
	}
	return d
}

func (s *sim) pausedUntil(i int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused[i]
}

// client is one goroutine of process i that locks, works and writes until the end.
func (s *sim) client(p *process, i, line int) {
	r := rand.New(rand.NewPCG(s.seed, uint64(10*(i+1)+line)))
	exp := func(mean time.Duration) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
	for n := 0; time.Now().Before(s.end); n++ {
		time.Sleep(exp(s.think))
		key, job := fmt.Sprintf("key-%d", r.IntN(2)), false
		if s.records && r.IntN(2) == 0 {
			key, job = fmt.Sprintf("job-%d", int(time.Until(s.end)/(3*time.Second))), true
		}
		holder := fmt.Sprintf("%d.%d.%d", i, line, n)
		ctx, cancel := context.WithCancel(context.Background())
		wait := time.AfterFunc(exp(s.ttl), cancel)
		s.history.Attempt(key, holder, time.Now())
		acquire := p.Acquire
		if r.IntN(4) == 0 {
			acquire = p.TryAcquire
		}
		lease, err := acquire(ctx, key)
		if !wait.Stop() && err == nil { // its patience ran out as the grant came
			s.history.Granted(key, holder, lease.FencingToken(), time.Now())
			s.history.Ended(key, holder, lease.FencingToken(), time.Now())
			lease.Release(context.Background())
			continue
		}
		if err != nil {
			s.refused(key, err)
			cancel()
			continue
		}
		s.hold(lease, holder, exp(s.hold_()), job, r)
		cancel()
	}
}

func (s *sim) hold_() time.Duration { return s.mixture.hold }

func (s *sim) refused(key string, err error) {
	op, ok := errors.AsType[*OpError](err)
	switch {
	case !ok:
		s.t.Errorf("untyped error: %v", err)
	case errors.Is(err, ErrDone):
		s.mu.Lock()
		s.counts.dones++
		s.mu.Unlock()
		s.history.SeenDone(key, op.Record.Token, time.Now())
	}
}

// hold works under the lease, writing to the fenced store, and ends it in one of several ways.
func (s *sim) hold(lease *Lease, holder string, work time.Duration, job bool, r *rand.Rand) {
	key, token, ctx := lease.Key(), lease.FencingToken(), lease.Context()
	s.history.Granted(key, holder, token, time.Now())
	s.mu.Lock()
	s.counts.grants++
	s.mu.Unlock()
	until := time.After(work)
	for working := true; working; {
		if ctx.Err() == nil {
			s.history.Wrote(key, token, time.Now(), s.fences.write(key, token))
		}
		select {
		case <-ctx.Done():
			working = false
		case <-until:
			working = false
		case <-time.After(time.Duration(r.ExpFloat64() * float64(s.ttl) / 4)):
		}
	}
	s.history.Ended(key, holder, token, time.Now())
	switch {
	case job:
		if err := lease.Complete(context.Background(), []byte(holder)); err == nil {
			s.history.Completed(key, holder, token, time.Now())
			s.mu.Lock()
			s.counts.completions++
			s.mu.Unlock()
		} else if r.IntN(2) == 0 {
			lease.Release(context.Background())
		}
	case r.IntN(8) > 0: // otherwise the holder dies; its parent context ends with it
		lease.Release(context.Background())
	}
}

// nemesis breaks things until the end, and mends them then.
func (s *sim) nemesis(r *rand.Rand) {
	for len(s.faults) > 0 {
		time.Sleep(time.Duration(r.ExpFloat64() * float64(s.every)))
		if time.Now().After(s.end) {
			break
		}
		n := s.world.nodes[r.IntN(s.nodes())]
		long := time.Duration(r.ExpFloat64() * float64(s.ttl) / 2)
		switch s.faults[r.IntN(len(s.faults))] {
		case "down":
			n.Down()
			time.AfterFunc(long, n.Up)
		case "hang":
			n.Hang()
			time.AfterFunc(long, n.Up)
		case "slow":
			n.Slow(time.Duration(r.ExpFloat64() * float64(s.ttl) / 10))
			time.AfterFunc(long, n.Up)
		case "restart":
			n.Restart()
		case "empty":
			n.RestartEmpty()
		case "rolling":
			for i, n := range s.world.nodes {
				time.AfterFunc(time.Duration(i)*s.ttl/2, n.RestartEmpty)
			}
		case "flush":
			n.Flush()
		case "promote":
			n.Promote()
		case "step": // far, and back
			d := time.Duration((r.Float64() - 0.3) * 4 * float64(s.ttl))
			n.StepClock(d)
			time.AfterFunc(long, func() { n.StepClock(-d) })
		case "shift": // a little, within the window
			d := time.Duration((r.Float64() - 0.5) * float64(s.ttl) / 10)
			n.StepClock(d)
			time.AfterFunc(long, func() { n.StepClock(-d) })
		case "pause":
			i := r.IntN(s.processes)
			s.mu.Lock()
			s.paused[i] = time.Now().Add(long)
			s.mu.Unlock()
		}
	}
	time.Sleep(time.Until(s.end) + 5*s.ttl) // mends everything: the timers above are long over then
}

// recovers checks that after the last fault every key becomes free again.
func (s *sim) recovers() {
	for _, n := range s.world.nodes {
		n.Up()
	}
	p := s.stranger(s.options()...)
	for _, key := range []string{"key-0", "key-1"} {
		ctx, cancel := context.WithTimeout(context.Background(), 3*s.ttl)
		lease, err := p.Acquire(ctx, key)
		cancel()
		if err != nil {
			s.t.Errorf("%+v\nnever free again: %v", s.mixture, err)
			continue
		}
		s.history.Granted(key, "last", lease.FencingToken(), time.Now())
	}
}

// A fencedStore refuses a write with a smaller token than it has seen.
type fencedStore struct {
	mu   sync.Mutex
	seen map[string]uint64
}

func (f *fencedStore) write(key string, token uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil {
		f.seen = map[string]uint64{}
	}
	if token < f.seen[key] {
		return false
	}
	f.seen[key] = token
	return true
}
