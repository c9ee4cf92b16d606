package leader_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/cronlock/leader"
	"github.com/lockkit/lockkit/testutil/history"
)

// elections are candidates under a random campaign of faults, and who of them leads.
type elections struct {
	*world
	rng *rand.Rand
	off []time.Duration // by which the nodes' clocks are
	h   history.History

	mu      sync.Mutex
	all     []*candidate
	current map[*candidate]leader.Term
}

// stand adds a candidate. The others are looked at in the very moment of its elections.
func (s *elections) stand(name string) {
	s.Helper()
	c := s.electedDoes(name, s.first.Replica(), func(*candidate, context.Context, leader.Term) { s.look() })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, c)
}

// look notes who leads.
func (s *elections) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now()
	for _, c := range s.all {
		s.lookAt(c, at)
	}
	if n := len(s.current); n > 1 {
		s.Errorf("at %v: %d leaders", at, n)
	}
}

func (s *elections) lookAt(c *candidate, at time.Time) {
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

// run makes so many things happen.
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

// happen makes something go wrong, or mends it all.
func (s *elections) happen() {
	c, i := s.all[s.rng.IntN(len(s.all))], s.rng.IntN(len(s.nodes))
	n := s.nodes[i]
	switch s.rng.IntN(13) {
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
		c.locks.Link.Cut()
	case 6:
		for _, l := range leaders(s.all...) { // the fault that matters most
			l.locks.Link.Cut()
		}
	case 7:
		c.Resign()
	case 8:
		if state, err := s.first.Inspect(s.Context(), key); err == nil && state.Holder != nil {
			_, _ = s.first.Revoke(s.Context(), key, state.Holder.Token) // which the faults may refuse
		}
	default: // or there is no leader most of the time
		s.mend()
	}
}

func (s *elections) mend() {
	for i, n := range s.nodes {
		n.Up()
		n.StepClock(-s.off[i])
		s.off[i] = 0
	}
	for _, c := range s.all {
		c.locks.Link.Mend()
	}
}

// Over a random campaign of faults there is one leader at a time, terms have growing tokens, and each process has its
// terms one after the other. In the end, when the faults are over, there is a leader, whom everybody knows.
func TestOneLeaderAtATime(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, 3, func(w *world) {
				s := &elections{world: w, rng: rand.New(rand.NewPCG(seed, 3)), off: make([]time.Duration, 3), current: map[*candidate]leader.Term{}}
				for i := range 4 {
					s.stand(fmt.Sprint(i))
				}
				s.run(40)
				isErr(t, "history", s.h.Check(), nil)
				terms := 0
				for _, c := range s.all {
					terms += len(c.reigns())
				}
				if terms < 6 {
					t.Errorf("only %d terms: the campaign has shown little", terms)
				}
				time.Sleep(3 * ttl)
				w.known(w.leader(0, s.all...), s.all...)
			})
		})
	}
}
