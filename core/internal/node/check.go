package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// ErrSameServer is the reason why a server that is listed twice has only one vote.
var ErrSameServer = errors.New("the same server is listed twice")

// A fitness is the result of the examinations of a node's server. The node's mutex guards it.
type fitness struct {
	fault         error         // why the server is unfit, so that the node must not take part; nil if it is fit
	unchecked     error         // why there is no result of the latest examination, or none yet; nil if there is one
	checkOnAnswer bool          // the server did not answer, so it is examined at its first answer
	checkAt       clock.Instant // when the server is examined next; Never while it is being examined, or fit
	runID         string        // the server's own name for its run; "" while unknown
}

// CheckAll examines all nodes at once, and returns an error that names the unfit ones. Nodes that do not answer within
// the node timeout are examined later.
func (g *Group) CheckAll() error {
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
		fault, unchecked := n.fault, n.unchecked
		n.mu.Unlock()

		switch {
		case fault != nil:
			faults = append(faults, fmt.Errorf("%v: %w", n, fault))
		case unchecked != nil:
			g.Conf.Logger.Warn("lockkit: node cannot be checked, starting without it", n.logAttrs(), "err", unchecked)
		}
	}
	return errors.Join(faults...)
}

// check examines a server, records and logs the result, and schedules the next examination. If the server could not
// be examined, its node stays fit or unfit as before.
func (g *Group) check(n *Node) {
	n.mu.Lock()
	again := n.fault != nil || goredis.TroubleOf(n.unchecked).MayHaveMoved
	n.mu.Unlock()

	// The name may lead to another server by now than to the unfit one.
	if again {
		g.Buckets[0].reconnect(n)
	}

	runID, fault, err := g.examine(n)
	if lasting := goredis.AsLasting(err); lasting != nil {
		fault = lasting
		err = nil
	}

	before, after := g.setFitness(n, runID, fault, err)
	if err == nil {
		g.logFitness(n, before, after)
	}
	g.schedule()
}

// setFitness records the result of an examination, and returns the node's fault before and after it. It holds g.mu
// throughout, so that of two nodes on one server only one is found to be the duplicate.
func (g *Group) setFitness(n *Node, runID string, fault, err error) (before, after error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	isFit := err == nil && fault == nil
	if isFit {
		fault = g.duplicateOf(n, runID)
		isFit = fault == nil
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	before = n.fault
	n.unchecked = err

	n.checkAt = g.Clock.Now().Add(RecheckEvery)
	if isFit {
		n.checkAt = clock.Never
	}

	n.checkOnAnswer = runID == "" && !goredis.Answered(err)
	if err == nil {
		n.fault = fault
		n.runID = runID
	}
	return before, fault
}

func (g *Group) logFitness(n *Node, before, after error) {
	switch {
	case after != nil && before == nil:
		g.Callbacks.Post(&n.logCalls, func() {
			g.Conf.Logger.Error("lockkit: node is unfit and does not take part", n.logAttrs(), "err", after)
		})
	case after == nil && before != nil:
		g.Callbacks.Post(&n.logCalls, func() {
			g.Conf.Logger.Info("lockkit: node is fit and takes part again", n.logAttrs())
		})
	}
}

// duplicateOf returns an error if another fit node is the same server, and schedules a check of that node: the two
// may have swapped addresses. g.mu must be held.
func (g *Group) duplicateOf(n *Node, runID string) (fault error) {
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

// Recheck examines a node that has refused a request, unless the node is known to be unfit. It does not wait for the
// result.
func (g *Group) Recheck(n *Node) {
	n.mu.Lock()
	isFit := n.fault == nil
	n.mu.Unlock()
	if isFit {
		g.Tasks.Go(func() { g.check(n) })
	}
}

// examine returns the run ID of a node's server, and the fault that makes it unfit. A fault lasts until an operator
// fixes it. If err is not nil, the examination is incomplete.
func (g *Group) examine(n *Node) (runID string, fault, err error) {
	x := newExamination(g.timeoutContext(), n.Index, n.Client, &g.Conf, g.Keys)
	x.waitsForClient = true
	if err := x.readInfo(); err != nil {
		return "", nil, err
	}

	x.AddFlaws()
	if x.Flaws == nil {
		err := x.probeRights()
		if err != nil {
			return x.Info["run_id"], nil, err
		}
		x.AddMissingRights()
	}

	for _, f := range x.Flaws {
		if f.Severity == severe {
			fault = errors.Join(fault, fmt.Errorf("%s: %s", f.What, f.Fix))
		}
	}

	// If this fails, the node's replies report the longest max TTL later.
	if fault == nil && g.Conf.Guarded {
		g.learnFrom(x, n)
	}
	return x.Info["run_id"], fault, nil
}

// learnFrom learns the longest max TTL from a node's guard records.
func (g *Group) learnFrom(x *Examination, n *Node) {
	for _, text := range x.guards() {
		longest := wire.LongestOf(text.record)
		first := g.LearnMaxTTL(longest)
		if first {
			g.logLongest(longest, n)
		}
	}
}
