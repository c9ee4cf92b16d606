package core

import (
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
)

// An attempt is the Asker of its rounds: it records each request when the request leaves, and each reply, even after
// the round is over.
var _ node.Asker = (*attempt)(nil)

// StartSend records a request that is about to leave for a node, and reports whether it may leave. The end of the attempt
// depends on the requests that the nodes were sent.
func (a *attempt) StartSend(op wire.Op, node int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	needsLiveAttempt := op == wire.OpAcquire || op == wire.OpRenew
	if needsLiveAttempt && a.isOver() {
		return false
	}
	if op == wire.OpComplete {
		a.pendingCompletions = a.pendingCompletions.Without(node)
	}
	a.nodes[node].recordSent(op)
	return true
}

// ReplyCallbacks returns the queue of the observer's background calls, for all attempts of the call and for the lease.
func (a *attempt) ReplyCallbacks() *callback.Queue { return a.callbacks }

// OnReply records a reply to a request of the attempt. One node that reports a revocation is enough, because the others
// may have forgotten it.
func (a *attempt) OnReply(op wire.Op, got node.Reply) (v wire.Verdict, slept bool) {
	// declareLost takes the lock itself.
	if got.Revoked {
		a.lease.declareLost(LossRevoked)
	}

	// A node may name an earlier attempt of this process as the holder. That takes the lock of the other attempt, so it
	// comes before this one's is taken.
	if op == wire.OpAcquire {
		a.e.releaseLeftover(got)
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
		if got.Verdict == wire.CircuitOpen { // the request is not sent
			a.pendingCompletions = a.pendingCompletions.Without(got.Node)
		}
	default: // senders of other requests handle their replies themselves
	}
	return got.Verdict, slept
}

// onAcquireReply records a reply to the request for the key. a.mu must be held.
func (a *attempt) onAcquireReply(n *nodeState, got node.Reply) {
	if got.Place > 0 {
		a.recordQueued()
	}
	if got.Verdict != wire.Granted {
		return
	}
	n.recordGrant(got)

	// The attempt may have ended without releasing this node.
	debt, now := n.debtIfGranted()
	if now && a.phase == attemptOver {
		a.scheduleRelease(got.Node, debt, 0)
	}
}

// recordQueued records that a node has the call in its queue. The reply of a slow node may arrive after the grant.
// a.mu must be held.
func (a *attempt) recordQueued() {
	switch {
	case a.place != unqueued: // it is known already
	case a.exposure == tokenReported:
		a.place = leaving
	default:
		a.place = queued
	}
}

// onRenewReply records a reply to a renewal, and reports whether it shows that this machine's clock stood still. a.mu
// must be held.
func (a *attempt) onRenewReply(n *nodeState, got node.Reply) (slept bool) {
	has, slept := n.recordRenewal(got, a.p.Window)

	// A node that has the lease again may have forgotten another grant of the key. If this lease is still trusted
	// when the reply arrives, no holder could act on that grant.
	vouches := has && !a.completionSent && a.lease.isTrusted()
	if vouches {
		n.memory = got.Memory
	}
	return slept
}

// onReleaseReply records a reply to a release, and returns the verdict that counts. a.mu must be held.
func (a *attempt) onReleaseReply(n *nodeState, got node.Reply) wire.Verdict {
	verdict, again := n.recordRelease(got, a.lease.cooldownLeft() > 0)
	switch {
	case again:
		a.scheduleRelease(got.Node, releaseRetryDue, a.p.nodeTimeout)
	case n.debt == releaseFailed:
		a.e.leftovers.add(a)
	}
	return verdict
}
