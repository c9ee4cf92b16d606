package cronlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/testutil"

	"github.com/lockkit/lockkit/testutil/history"
)

// elections are candidates under a random campaign of faults, and who of them leads.
type elections struct {
	w      *world
	rng    *rand.Rand
	cables []*testutil.Link
	off    []time.Duration // by which the nodes' clocks are
	h      history.History

	mu      sync.Mutex
	all     []*candidate
	current map[*candidate]Term
}

// stand adds a candidate. The others are looked at in the very moment of its elections.
func (s *elections) stand(name string) {
	locks, k := s.w.wired()
	var c *candidate
	ready := make(chan struct{})
	c = s.w.electorOn(name, locks, OnElected(func(_ context.Context, term Term) {
		<-ready
		c.elected(term)
		s.look()
	}))
	s.mu.Lock()
	s.all, s.cables = append(s.all, c), append(s.cables, k)
	s.mu.Unlock()
	close(ready)
}

// look notes who leads.
func (s *elections) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now()
	for _, c := range s.all {
		term, err := c.Term()
		was, led := s.current[c]
		if led && (err != nil || term.FencingToken != was.FencingToken) {
			s.h.Ended("leader", c.name, was.FencingToken, at)
			delete(s.current, c)
			led = false
		}
		if err == nil && !led {
			s.h.Granted("leader", c.name, term.FencingToken, at)
			s.current[c] = term
		}
	}
	if n := len(s.current); n > 1 {
		s.w.t.Errorf("at %v: %d leaders", at, n)
	}
}

// run has so many things happen.
func (s *elections) run(n int) {
	for range n {
		s.happen()
		for range s.rng.IntN(40) {
			s.look()
			time.Sleep(time.Duration(s.rng.IntN(800)) * time.Millisecond)
		}
	}
	s.mend()
	s.look()
}

// happen has something go wrong, or mends it all.
func (s *elections) happen() {
	c, i := s.rng.IntN(len(s.all)), s.rng.IntN(len(s.w.nodes))
	n := s.w.nodes[i]
	switch s.rng.IntN(12) {
	case 0:
		n.Down()
	case 1:
		n.Hang()
	case 2:
		n.Slow(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
	case 3:
		n.RestartEmpty()
	case 4:
		d := time.Duration(s.rng.IntN(40)-20) * time.Second
		n.StepClock(d)
		s.off[i] += d
	case 5:
		s.cables[c].Cut()
	case 6:
		s.cutLeaders()
	case 7:
		ctx, cancel := context.WithTimeout(s.w.t.Context(), time.Millisecond)
		s.all[c].Resign(ctx) // its end is seen by look
		cancel()
	default: // or there is no leader most of the time
		s.mend()
	}
}

// cutLeaders is the fault that matters most.
func (s *elections) cutLeaders() {
	for i, c := range s.all {
		if c.leads() {
			s.cables[i].Cut()
		}
	}
}

func (s *elections) mend() {
	for i, n := range s.w.nodes {
		n.Up()
		n.StepClock(-s.off[i])
		s.off[i] = 0
	}
	for _, k := range s.cables {
		k.Mend()
	}
}

// Over a random campaign of faults there is one leader at a time, terms have growing tokens, and each process
// hears of its terms in turn. A process says that it leads for no longer than it is trusted to.
func TestOneLeaderAtATime(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, w *world) {
				s := &elections{w: w, rng: rand.New(rand.NewPCG(seed, 3)), off: make([]time.Duration, 3), current: map[*candidate]Term{}}
				for i := range 4 {
					s.stand(fmt.Sprint(i))
				}
				s.run(40)
				if err := s.h.Check(); err != nil {
					t.Error(err)
				}
				terms := 0
				for _, c := range s.all {
					checkCalls(t, c)
					terms += len(c.called()) / 2
				}
				t.Logf("%d terms ended", terms)
				if terms < 3 {
					t.Errorf("only %d terms: the campaign has shown little", terms)
				}
			})
		})
	}
}

// Leaders come and go while a job runs every second: no tick runs twice, and none overlaps another.
func TestTicksOnceWhileLeadersChange(t *testing.T) {
	bubble(t, 3, func(t *testing.T, w *world) {
		running := 0
		_, all := w.members(3, secondly, func(m *member, ctx context.Context) error {
			w.mu.Lock()
			running++
			if running > 1 {
				t.Error("two runs at once")
			}
			w.mu.Unlock()
			defer func() {
				w.mu.Lock()
				running--
				w.mu.Unlock()
			}()
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
			return nil
		})
		start := time.Now()
		rng := rand.New(rand.NewPCG(1, 1))
		for range 15 {
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			for _, m := range atHead(all) {
				if rng.IntN(3) == 0 {
					m.cable.Cut()
					await(t, ttl, "it leads no more", func() bool { return !m.leads() })
					m.cable.Mend()
				} else if err := m.Resign(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		replicas := map[string]bool{}
		for _, r := range w.ran() {
			replicas[r.replica] = true
		}
		for tick, n := range w.perTick() {
			if n != 1 {
				t.Errorf("tick %v ran %d times", tick, n)
			}
		}
		if len(replicas) < 3 || len(w.ran()) < 20 {
			t.Errorf("%d runs on %d replicas in %v: the test has shown little", len(w.ran()), len(replicas), time.Since(start))
		}
	})
}

// At its first look at the clock after the end of its validity a leader knows that it does not lead any more,
// even if nothing else in the process had time to notice, as after a pause.
func TestFirstLookOfALateLeader(t *testing.T) {
	t.Parallel()
	for range 20 {
		serialBubble(t, 3, func(t *testing.T, w *world) {
			elected, task := make(chan context.Context, 1), make(chan context.Context, 1)
			c := w.electorOn("c", w.locks(), OnElected(func(ctx context.Context, _ Term) { elected <- ctx }))
			leader(t, taking, c)
			w.alone(c, c.Task(func(ctx context.Context) error {
				task <- ctx
				<-ctx.Done()
				return nil
			})).Start()
			run, notice := <-task, <-elected
			term, err := c.Term()
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range w.nodes {
				n.Down()
			}
			time.Sleep(time.Until(term.ValidUntil()))
			leads, ran, told := c.IsLeader(t.Context()), run.Err(), notice.Err()
			if !errors.Is(leads, ErrNotLeader) {
				t.Error("it leads at the end of its validity")
			}
			if ran == nil || !errors.Is(context.Cause(run), ErrLeadershipLost) {
				t.Errorf("a run's context: %v, %v", ran, context.Cause(run))
			}
			if told == nil || !errors.Is(context.Cause(notice), ErrLeadershipLost) {
				t.Errorf("OnElected's context: %v, %v", told, context.Cause(notice))
			}
			for _, n := range w.nodes {
				n.Up()
			}
		})
	}
}
