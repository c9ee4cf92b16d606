package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// ErrSameServer is why a server has no second vote.
var ErrSameServer = errors.New("the same server is listed twice")

// Check examines all nodes at once, and names those that are unfit. Nodes that do not answer within the
// node timeout are examined later.
func (h *health) Check() error {
	ctx, cancel := context.WithTimeout(context.Background(), h.g.Conf.Timeout) //nolint:forbidigo // New has no context
	defer cancel()
	checked := make(chan struct{}, len(h.g.Nodes))
	for _, n := range h.g.Nodes {
		h.g.tasks.Go(func() {
			h.check(n)
			checked <- struct{}{}
		})
	}
	for range h.g.Nodes {
		select {
		case <-checked:
		case <-ctx.Done():
		}
	}
	var faults []error
	for _, n := range h.g.Nodes {
		n.mu.Lock()
		fault, unsure := n.fault, n.unsure
		n.mu.Unlock()
		switch {
		case fault != nil:
			faults = append(faults, fmt.Errorf("%v: %w", n, fault))
		case unsure != nil:
			h.g.Conf.Logger.Warn("lockkit: node cannot be checked, starting without it", n.attrs(), "err", unsure)
		}
	}
	return errors.Join(faults...)
}

// check examines a server. One that could not be examined stays what it was.
func (h *health) check(n *Node) {
	runID, fault, err := h.examine(n)
	if lasts := goredis.Lasting(err); lasts != nil {
		fault, err = lasts, nil
	}
	h.mu.Lock()
	if err == nil && fault == nil {
		fault = h.twin(n, runID)
	}
	n.mu.Lock()
	was := n.fault
	n.unsure, n.checkAt = err, h.g.Clock.Now().Add(RecheckEvery)
	n.away = runID == "" && !goredis.Answered(err)
	if err == nil {
		n.fault, n.runID = fault, runID
	}
	if err == nil && fault == nil {
		n.checkAt = clock.Never
	}
	n.mu.Unlock()
	h.mu.Unlock()
	switch {
	case err != nil:
	case fault != nil && was == nil:
		h.g.Conf.Logger.Error("lockkit: node is unfit and does not take part", n.attrs(), "err", fault)
	case fault == nil && was != nil:
		h.g.Conf.Logger.Info("lockkit: node is fit and takes part again", n.attrs())
	}
	h.plan()
}

// twin says which other node that takes part is the same server. That one is examined, too: the two may have changed places.
func (h *health) twin(n *Node, runID string) (fault error) {
	for _, other := range h.g.Nodes {
		other.mu.Lock()
		if other != n && n.Cluster == nil && runID != "" && other.runID == runID && other.fault == nil {
			fault = fmt.Errorf("%w, it is also %v", ErrSameServer, other)
			other.checkAt = min(other.checkAt, h.g.Clock.Now())
		}
		other.mu.Unlock()
	}
	return fault
}

// Doubt has a node that refused something examined at once, unless it is known to be unfit.
func (h *health) Doubt(n *Node) {
	n.mu.Lock()
	fit := n.fault == nil
	n.mu.Unlock()
	if fit {
		h.g.Go(func() { h.check(n) })
	}
}

// examine asks a server who it is, and whether it runs what lockkit's scripts call. A fault lasts until somebody mends it;
// with an error, not all is known.
func (h *health) examine(n *Node) (runID string, fault, err error) {
	ctx := &nodeContext{context.Background(), time.Now().Add(h.g.Conf.Timeout)} //nolint:forbidigo // bounded by the node timeout
	x := newExamination(ctx, n.Client, &h.g.Conf, h.g.Keys)
	x.waits = true
	if err := x.lookAtInfo(); err != nil {
		return "", nil, err
	}
	if x.Outside(); x.Flaws == nil {
		reply, err := run(ctx, n.Client, x.probing())
		if err == nil {
			err = x.denied(wire.ParseRights(reply, h.g.Conf.Prefix))
		}
		if err != nil {
			return x.Info["run_id"], nil, err
		}
		x.LacksRights()
	}
	var faults []error
	for _, f := range x.Flaws {
		if f.Severity == severe {
			faults = append(faults, fmt.Errorf("%s: %s", f.What, f.Mend))
		}
	}
	if faults == nil && h.g.Conf.Guarded { // where that fails, the node's replies tell later
		for _, record := range x.guards() {
			if longest := wire.LongestOf(record); longest > 0 && h.g.Learn(longest) {
				h.g.tellLongest(longest, n)
			}
		}
	}
	return x.Info["run_id"], errors.Join(faults...), nil
}
