package core

import (
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// A NodeReply is the reply of one node in the last round of an operation.
type NodeReply struct {
	Node      int    // index in the list given to New
	Addr      string // its address, if the client tells it
	Verdict   Verdict
	Remaining time.Duration // VerdictHeld, VerdictQuarantined: time left
	Skew      time.Duration // node's wall clock minus this process's, when it answered; within Latency
	Latency   time.Duration // from request to answer
	Err       error         // Failed, TimedOut, CircuitOpen: the cause, and the node's earlier failure if known

	// Only for Observer.Node, so that an observer of several Lockers can tell their nodes apart.
	LockerID uint64 // a number of the Locker, unique in the process; Lockers derived by With share it
	Of       int    // the number of nodes of the Locker
}

// String describes the reply for a log line.
func (n NodeReply) String() string {
	v := quorum.Vote{
		Reply: wire.Reply{Verdict: wire.Verdict(n.Verdict), Remaining: n.Remaining},
		Skew:  n.Skew,
		Err:   n.Err,
	}
	return node.Name(n.Node, n.Addr) + ": " + v.Explain()
}

// A Verdict classifies the answer of one node to one request.
type Verdict uint8

const (
	VerdictFailed      Verdict = iota // no usable answer; Err says why
	VerdictPending                    // not answered when the outcome was decided without it
	VerdictGranted                    // yes: granted, renewed, released or recorded
	VerdictHealed                     // renewed, after the node had lost its memory or the lease
	VerdictPassed                     // renewed, but others got the key since: a Complete does not count there
	VerdictUnconfirmed                // not counted: promoted recently, and the old primary may still serve
	VerdictHeld                       // another attempt holds the key
	VerdictReserved                   // the key is free, but an earlier waiter gets it first
	VerdictDone                       // a completion record stands
	VerdictGone                       // the lease is not, or no longer, on this node
	VerdictForgotten                  // cannot record a completion: the node may have forgotten a later holder
	VerdictQuarantined                // the node lost its memory, and waits for the end of leases it may have forgotten
	VerdictClockSkewed                // the clocks of node and client differ by more than the clock window
	VerdictTooLate                    // in flight for longer than the clock window, or too late for a cooldown
	VerdictReplica                    // the node is not a master
	VerdictUnguarded                  // the server does not report its replication history
	VerdictTimedOut                   // no answer within the node timeout
	VerdictCircuitOpen                // not asked: the node has not been answering
)

// String returns the verdict in snake_case, fit for a metric attribute.
func (v Verdict) String() string { return wire.Verdict(v).String() }

// replies returns all votes, for errors and observers.
func replies(g *node.Group, t *quorum.Tally) []NodeReply {
	replies := make([]NodeReply, len(t.Votes))
	for i := range t.Votes {
		replies[i] = replyOf(g.Nodes[i], &t.Votes[i])
	}
	return replies
}

// replyOf returns the vote of a node, for errors and observers.
func replyOf(n *node.Node, v *quorum.Vote) NodeReply {
	return NodeReply{
		Node:      n.Index,
		Addr:      n.Addr,
		Verdict:   Verdict(v.Verdict),
		Remaining: v.Remaining,
		Skew:      v.Skew,
		Latency:   v.Latency,
		Err:       v.Err,
	}
}
