package otellock

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockkit/lockkit/core"
)

// nodeID tells nodes apart, also those of several Lockers.
type nodeID struct {
	index int
	addr  string
}

// A node is what one Redis master is charted as.
type node struct {
	attrs    []attribute.KeyValue
	plain    point
	requests lookup[core.Verdict, point]
	status   lookup[nodeState, point]

	mu    sync.Mutex
	state nodeState
}

// A nodeState is the state of a node as this process has found it.
type nodeState string

const (
	unknown nodeState = ""
	voting  nodeState = "voting"
	failing nodeState = "failing"      // no usable answer
	open    nodeState = "circuit_open" // left alone but for a probe per node timeout
	// Others are called as the verdict: quarantined, clock_skewed, replica, unguarded, overflow.
)

func (o *Observer) newNode(id nodeID, other bool) *node {
	n := &node{attrs: nodeAttrs(id, other)}
	with := func(attr attribute.KeyValue) point {
		return newPoint(append(n.attrs[:len(n.attrs):len(n.attrs)], attr)...)
	}
	n.plain = newPoint(n.attrs...)
	n.requests = lookup[core.Verdict, point]{limit: 64, make: func(v core.Verdict, _ bool) point { return with(AttrVerdict.String(v.String())) }}
	n.status = lookup[nodeState, point]{limit: 64, make: func(s nodeState, _ bool) point { return with(AttrNodeState.String(string(s))) }}
	return n
}

// Node implements [core.NodeObserver].
func (o *Observer) Node(ctx context.Context, kind core.OpKind, reply core.NodeReply) {
	in := &o.in
	if !anyEnabled(ctx, in.requests, in.node, in.status, in.offset) {
		return
	}
	n := o.nodes.get(nodeID{reply.Node, reply.Addr})
	in.requests.Add(ctx, 1, n.requests.get(reply.Verdict).add...)
	if reply.Verdict != core.CircuitOpen {
		in.node.Record(ctx, reply.Latency.Seconds(), n.plain.record...)
	}
	if reply.Err == nil && kind != core.OpRelease { // whose answer does not tell the time
		in.offset.Record(ctx, reply.Skew.Seconds(), n.plain.record...)
	}
	o.follow(ctx, n, kind, reply.Verdict)
}

// follow keeps the state of the node. All series of a node go back to 0 but that of its state; "voting" is
// always there, so that the nodes can be counted.
func (o *Observer) follow(ctx context.Context, n *node, kind core.OpKind, v core.Verdict) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.state
	n.state = was.next(kind, v)
	if n.state == was {
		return
	}
	if was == unknown {
		was = voting
	}
	o.in.status.Record(ctx, 0, n.status.get(was).record...)
	o.in.status.Record(ctx, 1, n.status.get(n.state).record...)
}

// next is the state after a node made that of a request.
func (s nodeState) next(kind core.OpKind, v core.Verdict) nodeState {
	switch v {
	case core.Granted, core.Held, core.Done, core.Gone, core.Forgotten, core.Healed, core.Passed, core.Unconfirmed:
		// Nodes in quarantine refuse acquisitions and touches only: the rest says that the node is there, not
		// that it votes.
		if kind == core.OpAcquire || kind == core.OpTouch || s == unknown || s == failing || s == open {
			return voting
		}
	case core.Failed, core.TimedOut:
		if s != open { // a probe that failed
			return failing
		}
	case core.CircuitOpen:
		return open
	case core.Quarantined, core.ClockSkewed, core.Replica, core.Unguarded, core.Overflow:
		return nodeState(v.String())
	}
	return s
}
