package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// ErrSameServer is why a server has no second vote.
var ErrSameServer = errors.New("the same server is listed twice")

// A fitness says what examinations have found of a node's server. The node's lock guards it.
type fitness struct {
	fault   error         // why the server is unfit, so that the node must not take part; nil if it is fit
	unsure  error         // why nothing is known of the server yet, or again; nil once it was examined
	away    bool          // the server did not answer, so that it is examined at its first answer
	checkAt clock.Instant // when the server is examined next; Never during an examination, and while the server is fit
	runID   string        // the server's own name for its run; "" while unknown
}

// Check examines all nodes at once, and names those that are unfit. Nodes that do not answer within the
// node timeout are examined later.
func (g *Group) Check() error {
	ctx, cancel := context.WithTimeout(context.Background(), g.Conf.Timeout) //nolint:forbidigo // New has no context
	defer cancel()
	checked := make(chan struct{}, len(g.Nodes))
	for _, n := range g.Nodes {
		g.Tasks.Go(func() {
			g.check(n)
			checked <- struct{}{}
		})
	}
	for range g.Nodes {
		select {
		case <-checked:
		case <-ctx.Done():
		}
	}
	var faults []error
	for _, n := range g.Nodes {
		n.mu.Lock()
		fault, unsure := n.fault, n.unsure
		n.mu.Unlock()
		switch {
		case fault != nil:
			faults = append(faults, fmt.Errorf("%v: %w", n, fault))
		case unsure != nil:
			g.Conf.Logger.Warn("lockkit: node cannot be checked, starting without it", n.attrs(), "err", unsure)
		}
	}
	return errors.Join(faults...)
}

// check examines a server. One that could not be examined stays what it was.
func (g *Group) check(n *Node) {
	n.mu.Lock()
	again := n.fault != nil || goredis.TroubleOf(n.unsure).Elsewhere
	n.mu.Unlock()
	if again { // its name may lead to another server by now than to the one that was unfit
		g.Buckets[0].reconnect(n)
	}
	runID, fault, err := g.examine(n)
	if lasts := goredis.Lasting(err); lasts != nil {
		fault = lasts
		err = nil
	}
	before, after := g.setFitness(n, runID, fault, err)
	if err == nil {
		g.logFitness(n, before, after)
	}
	g.plan()
}

func (g *Group) setFitness(n *Node, runID string, fault, err error) (before, after error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	isFit := err == nil && fault == nil
	if isFit {
		fault = g.twin(n, runID)
		isFit = fault == nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	before = n.fault
	n.unsure = err
	n.checkAt = g.Clock.Now().Add(RecheckEvery)
	if isFit {
		n.checkAt = clock.Never
	}
	n.away = runID == "" && !goredis.Answered(err)
	if err == nil {
		n.fault = fault
		n.runID = runID
	}
	return before, fault
}

func (g *Group) logFitness(n *Node, before, after error) {
	switch {
	case after != nil && before == nil:
		g.Callbacks.Post(&n.lines, func() {
			g.Conf.Logger.Error("lockkit: node is unfit and does not take part", n.attrs(), "err", after)
		})
	case after == nil && before != nil:
		g.Callbacks.Post(&n.lines, func() { g.Conf.Logger.Info("lockkit: node is fit and takes part again", n.attrs()) })
	}
}

// twin says which other node that takes part is the same server. That one is examined, too: the two may have changed places.
// Called with the lock, so that of two nodes that are one server only one is found to be the second.
func (g *Group) twin(n *Node, runID string) (fault error) {
	if n.Cluster != nil || runID == "" {
		return nil
	}
	for _, other := range g.Nodes {
		if other == n {
			continue
		}
		other.mu.Lock()
		if other.runID == runID && other.fault == nil {
			fault = fmt.Errorf("%w, it is also %v", ErrSameServer, other)
			other.checkAt = min(other.checkAt, g.Clock.Now())
		}
		other.mu.Unlock()
	}
	return fault
}

// Doubt has a node that refused something examined at once, unless it is known to be unfit.
func (g *Group) Doubt(n *Node) {
	n.mu.Lock()
	fit := n.fault == nil
	n.mu.Unlock()
	if fit {
		g.Tasks.Go(func() { g.check(n) })
	}
}

// examine asks a server who it is, and whether it runs what lockkit's scripts call. A fault lasts until somebody mends it;
// with an error, not all is known.
func (g *Group) examine(n *Node) (runID string, fault, err error) {
	x := newExamination(g.timeoutContext(), n.Index, n.Client, &g.Conf, g.Keys)
	x.waits = true
	if err := x.lookAtInfo(); err != nil {
		return "", nil, err
	}
	x.Outside()
	if x.Flaws == nil {
		err := x.probe()
		if err != nil {
			return x.Info["run_id"], nil, err
		}
		x.LacksRights()
	}
	for _, f := range x.Flaws {
		if f.Severity == severe {
			fault = errors.Join(fault, fmt.Errorf("%s: %s", f.What, f.Mend))
		}
	}
	if fault == nil && g.Conf.Guarded { // where that fails, the node's replies tell later
		g.learnFrom(x, n)
	}
	return x.Info["run_id"], fault, nil
}

func (g *Group) learnFrom(x *Examination, n *Node) {
	for _, text := range x.guards() {
		longest := wire.LongestOf(text.record)
		first := g.Learn(longest)
		if first {
			g.tellLongest(longest, n)
		}
	}
}
