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
	// Others are called as the verdict.
)

func (o *observer) newNode(id nodeID, other bool) *node {
	n := &node{attrs: nodeAttrs(id, other)}
	with := func(attr attribute.KeyValue) point {
		return newPoint(append(n.attrs[:len(n.attrs):len(n.attrs)], attr)...)
	}
	n.plain = newPoint(n.attrs...)
	n.requests = lookup[core.Verdict, point]{limit: 64, make: func(v core.Verdict, _ bool) point { return with(AttrVerdict.String(v.String())) }}
	n.status = lookup[nodeState, point]{limit: 64, make: func(s nodeState, _ bool) point { return with(AttrNodeState.String(string(s))) }}
	return n
}

// reply is [core.Observer.Node].
func (o *observer) reply(ctx context.Context, kind core.OpKind, r core.NodeReply) {
	in := &o.in
	if !anyEnabled(ctx, in.requests, in.node, in.status, in.offset) {
		return
	}
	n := o.nodes.get(nodeID{r.Node, r.Addr})
	in.requests.Add(ctx, 1, n.requests.get(r.Verdict).add...)
	if r.Verdict != core.VerdictCircuitOpen {
		in.node.Record(ctx, r.Latency.Seconds(), n.plain.record...)
	}
	if r.Err == nil && kind != core.OpRelease { // whose answer does not tell the time
		in.offset.Record(ctx, r.Skew.Seconds(), n.plain.record...)
	}
	o.follow(ctx, n, kind, r.Verdict)
}

// follow keeps the state of the node. All series of a node go back to 0 but that of its state; "voting" is
// always there, so that the nodes can be counted.
func (o *observer) follow(ctx context.Context, n *node, kind core.OpKind, v core.Verdict) {
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

// states are what verdicts say of a node. Those that are missing say nothing.
var states = map[core.Verdict]nodeState{
	core.VerdictGranted: voting, core.VerdictHeld: voting, core.VerdictDone: voting, core.VerdictGone: voting, core.VerdictForgotten: voting,
	core.VerdictHealed: voting, core.VerdictPassed: voting, core.VerdictUnconfirmed: voting,
	core.VerdictFailed: failing, core.VerdictTimedOut: failing,
	core.VerdictCircuitOpen: open,
	core.VerdictQuarantined: "quarantined", core.VerdictClockSkewed: "clock_skewed", core.VerdictReplica: "replica",
	core.VerdictUnguarded: "unguarded",
}

// next is the state after a node made that of a request.
func (s nodeState) next(kind core.OpKind, v core.Verdict) nodeState {
	next, ok := states[v]
	switch {
	case !ok:
		return s
	case next == failing && s == open: // a probe that failed
		return s
	case next == voting && kind != core.OpAcquire && kind != core.OpTouch && s != unknown && s != failing && s != open:
		// Nodes in quarantine refuse acquisitions and touches only: the rest says that the node is there, not
		// that it votes.
		return s
	}
	return next
}
