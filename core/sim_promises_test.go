package core

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
)

// What is promised for the time after the last fault: whatever the TTL, nothing that was asked for before waits much longer
// than what keeps it waiting.

const (
	// simBack is how soon after the last fault a call is served that has waited through it. Pauses last a second at most, but
	// what the client waits for keeps its connections from others for as long as the client's own timeouts say.
	simBack = coretest.Patience + 3*time.Second
	// simFound is how soon after it every process reaches every node: one that it found unfit is left alone for a while.
	simFound = node.RecheckEvery + simBack
)

// simPromises is what has become of the calls that wait when the last fault ends.
type simPromises struct {
	witness *process // who came after all faults, and knows nothing of them
	steward *Lease   // of hours; nil = there is none

	mu     sync.Mutex
	served map[*simProcess]bool // whether the key that it expects was granted
}

// expects has a process wait for a key that nobody else wants, from shortly before the last fault ends until it gets it.
func (s *simulation) expects(p *simProcess, i int) {
	r := rand.New(rand.NewPCG(s.seed, uint64(50+i)))
	time.Sleep(time.Until(s.end) - exponential(r, s.ttl()))
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), punctual{}, true), time.Until(s.end)+simBack)
	defer cancel()
	for ctx.Err() == nil {
		lease, err := p.Acquire(ctx, "expected-"+string(rune('0'+i)))
		if err == nil {
			s.promises.mu.Lock()
			s.promises.served[p] = true
			s.promises.mu.Unlock()
			lease.Release(context.Background())
			return
		}
		time.Sleep(simBack / 10)
	}
}

// mended notes that nothing breaks from now on. What is under way arrives yet.
func (s *simulation) mended() {
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	for _, p := range s.processes {
		p.mend()
	}
}

func (s *simulation) isCalm() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calm
}

// settling is how long after the last fault nothing of it matters any more.
func (s *simulation) settling() time.Duration {
	if s.lull > 0 {
		return s.longest()*11/10 + 5*s.ttl()
	}
	return max(5*s.ttl(), simFound)
}

// keepsPromises judges what comes back after the last fault.
func (s *simulation) keepsPromises() {
	s.promises.witness = s.stranger(append(s.options(s.ttl()), s.quiet(len(s.processes)))...)
	voting := s.voting()

	time.Sleep(simBack)
	if voting >= quorum.Of(s.mixture.nodes) {
		s.servesAgain()
		s.stewardIsFine()
	}
	if since, is := s.stewardRenewed(); is && since < time.Since(s.began)-s.lull-simTime/2 {
		s.count("renewed after hours")
	}

	time.Sleep(simFound - simBack)
	for i, p := range s.processes {
		s.reachesAll(p, i)
	}
}

// voting is how many nodes vote, as somebody sees it who has just come.
func (s *simulation) voting() (n int) {
	state, err := s.promises.witness.Inspect(context.Background(), "nobody's")
	if err != nil {
		return 0
	}
	return state.countNodes(func(k KeyOnNode) bool { return k.Verdict == VerdictGone })
}

// servesAgain judges that each process was served that waited, if a quorum of nodes votes.
func (s *simulation) servesAgain() {
	s.promises.mu.Lock()
	defer s.promises.mu.Unlock()
	for i, p := range s.processes {
		served := s.promises.served[p]
		if !served {
			s.t.Errorf("%+v\nprocess %d waits for a free key although a quorum of nodes has voted for %v", s.mixture, i, simBack)
			continue
		}
		s.count("served again")
	}
}

// reachesAll judges that a process reaches every node.
func (s *simulation) reachesAll(p *simProcess, i int) {
	state, err := p.Inspect(context.Background(), "nobody's")
	if err != nil {
		s.t.Errorf("%+v\nprocess %d reaches no quorum %v after the last fault: %v", s.mixture, i, simFound, err)
		return
	}
	for _, n := range state.Nodes {
		if !n.isReadable() {
			s.t.Errorf("%+v\nprocess %d does not reach node %d %v after the last fault: %v %v", s.mixture, i, n.Node, simFound, n.Verdict, n.Err)
		}
	}
	s.count("reached again")
}

// mend ends what has happened to the process's network.
func (p *simProcess) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused, p.near = time.Time{}, time.Time{}
	clear(p.cut)
}
