package core

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/coretest"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
)

// This file checks the promise for the time after the last fault: whatever the TTL, a call that waits through the
// faults is served soon after the last one has ended.

const (
	// simBack is the time after the last fault within which a waiting call is served. The pauses between attempts last
	// a second at most. But a request without an answer occupies its connection until the client's own timeout ends.
	simBack = coretest.Patience + 3*time.Second
	// simFound is the time after the last fault within which every process reaches every node. A process leaves a node
	// alone for a while after it has found the node unfit.
	simFound = node.RecheckEvery + simBack
)

// simPromises holds the results of the calls that wait when the last fault ends.
type simPromises struct {
	witness *process // a process that starts after all faults
	steward *Lease   // the lease of hours; nil = there is none

	mu     sync.Mutex
	served map[*simProcess]bool // the process got the key that it waited for
}

// expects makes a process wait for a key that no other process asks for. The wait begins shortly before the last fault
// ends, and lasts until simBack after it at most.
func (s *simulation) expects(p *simProcess, i int) {
	r := s.Random(uint64(50 + i))
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

// mended records that the last fault has ended. Messages that are under way keep their fates.
func (s *simulation) mended() {
	s.Tracef("the last fault has ended")
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

// settling returns the time after the last fault within which all its effects are over.
func (s *simulation) settling() time.Duration {
	if s.lull > 0 {
		return s.longest()*11/10 + 5*s.ttl()
	}
	return max(5*s.ttl(), simFound)
}

// keepsPromises checks the promises for the time after the last fault.
func (s *simulation) keepsPromises() {
	s.promises.witness = s.stranger(append(s.options(s.ttl()), s.quiet(len(s.processes)))...)
	voting := s.voting()

	time.Sleep(simBack)
	if voting >= quorum.Of(s.mixture.nodes) {
		s.servesAgain()
		s.stewardIsFine()
	}
	if since, is := s.stewardRenewed(); is && since < time.Since(s.Began)-s.lull-simTime/2 {
		s.Count("renewed after hours")
	}

	time.Sleep(simFound - simBack)
	for i, p := range s.processes {
		s.reachesAll(p, i)
	}
}

// voting returns the number of nodes that vote, as a new process sees them.
func (s *simulation) voting() (n int) {
	state, err := s.promises.witness.Inspect(context.Background(), "nobody's")
	if err != nil {
		return 0
	}
	return state.countNodes(func(k KeyOnNode) bool { return k.Verdict == VerdictGone })
}

// servesAgain checks that each process has got the key that it waited for. A quorum of nodes must vote.
func (s *simulation) servesAgain() {
	s.promises.mu.Lock()
	defer s.promises.mu.Unlock()
	for i, p := range s.processes {
		served := s.promises.served[p]
		if !served {
			s.Violation("process %d waits for a free key although a quorum of nodes has voted for %v", i, simBack)
			continue
		}
		s.Count("served again")
	}
}

// reachesAll checks that a process reaches every node.
func (s *simulation) reachesAll(p *simProcess, i int) {
	state, err := p.Inspect(context.Background(), "nobody's")
	if err != nil {
		s.Violation("process %d reaches no quorum %v after the last fault: %v", i, simFound, err)
		return
	}
	for _, n := range state.Nodes {
		if !n.isReadable() {
			s.Violation("process %d does not reach node %d %v after the last fault: %v %v", i, n.Node, simFound, n.Verdict, n.Err)
		}
	}
	s.Count("reached again")
}

// mend ends the faults of the process's network.
func (p *simProcess) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused, p.near = time.Time{}, time.Time{}
	clear(p.cut)
}
