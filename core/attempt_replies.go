package core

import (
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
)

// An attempt asks for all rounds of its own: it notes each request as it leaves, and each reply, also those that come when
// the round is over.
var _ node.Asker = (*attempt)(nil)

// Sends notes a request that is about to leave for a node, and reports whether it may leave. What the nodes are told at the
// end depends on what they were sent before.
func (a *attempt) Sends(op wire.Op, node int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	needsLife := op == wire.OpAcquire || op == wire.OpRenew
	if needsLife && a.isOver() {
		return false
	}
	if op == wire.OpComplete {
		a.pendingCompletions = a.pendingCompletions.Without(node)
	}
	a.nodes[node].recordSent(op)
	return true
}

// Callbacks is what the observer is told in the background of the attempt, of others of its call, and of the lease.
func (a *attempt) Callbacks() *callback.Queue { return a.callbacks }

// Hear notes a reply to a request of the attempt. One node that knows of a revocation is enough: the others may have
// forgotten it.
func (a *attempt) Hear(op wire.Op, got node.Reply) (v wire.Verdict, slept bool) {
	if got.Revoked {
		a.lease.declareLost(LossRevoked)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	n := &a.nodes[got.Node]
	isAnswered := got.Verdict != wire.CircuitOpen && goredis.Answered(got.Err)
	if isAnswered {
		n.recordAnswered(op)
	}

	switch op {
	case wire.OpAcquire:
		a.onAcquireReply(n, got)
	case wire.OpRenew:
		slept = a.onRenewReply(n, got)
	case wire.OpRelease:
		return a.onReleaseReply(n, got), false
	case wire.OpComplete:
		if got.Verdict == wire.CircuitOpen { // it is not sent
			a.pendingCompletions = a.pendingCompletions.Without(got.Node)
		}
	default: // the caller of any other round keeps what the nodes said
	}
	return got.Verdict, slept
}

// hearAcquire notes a reply to the request for the key. Called with the lock.
func (a *attempt) onAcquireReply(n *nodeState, got node.Reply) {
	if got.Place > 0 {
		a.recordQueued()
	}
	if got.Verdict != wire.Granted {
		return
	}
	n.recordGrant(got)
	debt, now := n.lateGrant()
	if now && a.phase == attemptOver {
		a.scheduleRelease(got.Node, debt, 0)
	}
}

// noteQueued notes that a node has the call in its queue. The answer of a slow node may come after the grant. Called with
// the lock.
func (a *attempt) recordQueued() {
	switch {
	case a.place != unqueued:
	case a.exposure == tokenReported:
		a.place = leaving
	default:
		a.place = queued
	}
}

// hearRenew notes a reply to a renewal, and reports whether it shows that this machine's clock stood still. Called with the
// lock.
func (a *attempt) onRenewReply(n *nodeState, got node.Reply) (slept bool) {
	has, slept := n.recordRenewal(got, a.p.Window)

	// A node that has the lease again may have forgotten another grant of the key meanwhile. Nobody could act on that
	// grant, if this lease is still trusted when the reply comes.
	vouches := has && !a.completionSent && a.lease.isTrusted()
	if vouches {
		n.memory = got.Memory
	}
	return slept
}

// hearRelease notes a reply to a release, and returns what its verdict amounts to. Called with the lock.
func (a *attempt) onReleaseReply(n *nodeState, got node.Reply) wire.Verdict {
	verdict, again := n.recordRelease(got, a.lease.cooldownLeft() > 0)
	if again {
		a.scheduleRelease(got.Node, releaseRetryDue, a.p.nodeTimeout)
	}
	return verdict
}
