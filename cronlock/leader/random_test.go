package leader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
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
	var c *candidate
	ready := make(chan struct{})
	c = s.candidate(name, leader.OnElected(func(_ context.Context, term leader.Term) {
		<-ready
		c.elected(term)
		s.look()
	}))
	s.mu.Lock()
	s.all = append(s.all, c)
	s.mu.Unlock()
	close(ready)
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
		briefly(func(ctx context.Context) { c.Resign(ctx) }, time.Millisecond) // its end is seen by look
	case 8:
		briefly(func(ctx context.Context) { c.RequestResign(ctx) }, time.Second)
	default: // or there is no leader most of the time
		s.mend()
	}
}

func briefly(f func(ctx context.Context), d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	f(ctx)
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

// Over a random campaign of faults there is one leader at a time, terms have growing tokens, and each process
// hears of its terms in turn. A process says that it leads for no longer than it is trusted to. In the end, when the faults
// are over, there is a leader, whom everybody knows.
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
				s.inTurn()
				time.Sleep(3 * ttl)
				w.known(w.leader(0, s.all...), s.all...)
			})
		})
	}
}

// inTurn checks the callbacks.
func (s *elections) inTurn() {
	s.Helper()
	terms := 0
	for _, c := range s.all {
		c.checkCalls(s.T)
		terms += len(c.called()) / 2
	}
	s.Logf("%d terms ended", terms)
	if terms < 3 {
		s.Errorf("only %d terms: the campaign has shown little", terms)
	}
}

// At its first look at the clock after the end of its validity a leader knows that it does not lead any more,
// even if nothing else in the process had time to notice, as after a pause.
func TestFirstLookOfALateLeader(t *testing.T) {
	t.Parallel()
	for range 20 {
		bubbleNow(t, 3, func(w *world) {
			elected := make(chan context.Context, 1)
			c := w.candidate("c", leader.OnElected(func(ctx context.Context, _ leader.Term) { elected <- ctx }))
			w.leader(taking, c)
			work, leave := w.enter(c)
			defer leave()
			notice, term := <-elected, c.mustTerm(w.T)
			for _, n := range w.nodes {
				n.Down()
			}
			synctest.Wait() // a renewal that was answered before counts
			time.Sleep(time.Until(term.ValidUntil()))
			leads, worked, told := c.IsLeader(w.Context()), work.Err(), notice.Err()
			isErr(w.T, "at the end of its validity", leads, leader.ErrNotLeader)
			if worked == nil || told == nil {
				w.Errorf("the work's context: %v; that of OnElected: %v", worked, told)
			}
			isErr(w.T, "the work's end", context.Cause(work), leader.ErrLost)
			isErr(w.T, "the end of OnElected's context", context.Cause(notice), leader.ErrLost)
			if _, _, err := c.Enter(w.Context()); !errors.Is(err, leader.ErrNotLeader) {
				w.Errorf("Enter: %v", err)
			}
			w.heal()
		})
	}
}
