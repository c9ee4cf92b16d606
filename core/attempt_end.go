package core

import (
	"context"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An attempt ends on the nodes by a release (attempt_release.go) or by a completion, whether or not it became a lease.

// abandon ends an attempt that did not become a lease, and releases the key on the nodes that granted it or may still
// grant it. If no node has granted it, nodes that have not answered are not sent a release yet. The call keeps its
// place in the queues until waitCtx ends.
//
// abandon waits for the nodes that have granted the key, because otherwise the next attempt of the call would find this
// one's grants there. It does not wait once waitCtx has ended.
func (a *attempt) abandon(ctx, waitCtx context.Context, t *quorum.Tally) {
	r := a.beginAbandon(ctx, waitCtx, t)
	node.Dispatch(r)
	waitForReleases(waitCtx, r, t)
}

// beginAbandon ends the attempt, and returns the round that releases the key, which has begun and is to be dispatched.
func (a *attempt) beginAbandon(ctx, waitCtx context.Context, t *quorum.Tally) *node.Round {
	mayHold, granted := t.MayHold(), t.WithVerdict(wire.Granted)
	waitOver := waitCtx.Err() != nil

	// The attempt is over before its release is made, so that onAcquireReply treats any further grant as a late one.
	a.mu.Lock()
	a.phase = attemptOver

	// A quorum of nodes may have granted the key, so Inspect may have shown the token.
	mayBeVisible := mayHold.Len() >= quorum.Of(len(a.nodes))
	if a.exposure == tokenUnseen && mayBeVisible {
		a.exposure = tokenVisible
	}

	if a.waiter != nil && waitOver {
		a.place = leaving
	}

	canPostpone := granted == 0 && a.place != leaving && !waitOver
	if canPostpone {
		mayHold &^= a.postponeRelease(t.Unanswered())
	}
	a.mu.Unlock()

	r := a.newReleaseRound(0)
	r.Decided = func(r *node.Round) bool { return granted&r.Unanswered() == 0 }
	r.Begin(ctx, mayHold)
	return r
}

// waitForReleases waits until the nodes that granted the key have answered the round that releases it. If none has, it
// does not wait.
func waitForReleases(waitCtx context.Context, r *node.Round, t *quorum.Tally) {
	if t.WithVerdict(wire.Granted) == 0 {
		r.Abandon()
	} else {
		r.Wait(waitCtx)
	}
}

// postponeRelease postpones the releases to nodes that have not answered, and returns the nodes that need no release now.
// They have refused the key, or most likely will. A node that has granted it after all, or has not answered within the
// node timeout, is sent the release then. a.mu must be held.
func (a *attempt) postponeRelease(nodes quorum.Set) (s quorum.Set) {
	for i := range a.nodes {
		n := &a.nodes[i]
		hasGranted := n.expiry != 0
		if !nodes.Has(i) || hasGranted {
			continue
		}

		if n.unanswered > 0 {
			a.scheduleRelease(i, releasePostponed, a.p.nodeTimeout)
		}
		needsNone := n.unanswered == 0 || n.debt == releasePostponed
		if needsNone {
			s = s.With(i)
		}
	}
	return s
}

// leaveQueues ends the attempt, and makes its release remove the call from the queues of the nodes, in which the call
// may stand under the attempt's name.
func (a *attempt) leaveQueues() {
	a.mu.Lock()
	a.place = leaving
	a.phase = attemptOver
	a.mu.Unlock()
}

// offerRecord asks all nodes to accept a record under a ballot. A nil error means that a quorum accepted it: only
// then is the record decided. If waitCtx ends first, the record may still be decided later.
func (a *attempt) offerRecord(ctx, waitCtx context.Context, rec *wire.Record, ballot uint64) ([]NodeReply, error) {
	r := a.newCompleteRound(rec, ballot, false)
	to := a.addPendingCompletions(quorum.All(len(a.nodes)))
	r.Send(ctx, to)
	r.Wait(waitCtx)

	// A node that still has an earlier completion in its lane was not asked. It counts as a timeout.
	for i := range r.Votes {
		if !to.Has(i) {
			r.Votes[i] = quorum.NewVote(wire.TimedOut, a.bucket.NoAnswerError(i))
		}
	}

	nodes := replies(a.e.Group, &r.Tally)
	return nodes, outcomeError(OpComplete, a.lock.Key, r.CompleteOutcome(rec.Token), nodes)
}

// addPendingCompletions returns the nodes for which no completion of the attempt waits in the lane, and records that
// one does now. Thus repeated completions do not pile up for a node that hangs.
func (a *attempt) addPendingCompletions(nodes quorum.Set) (to quorum.Set) {
	a.mu.Lock()
	defer a.mu.Unlock()

	to = nodes &^ a.pendingCompletions
	a.pendingCompletions |= to
	return to
}

// newCompleteRound returns the round that offers a record to the nodes and ends the attempt there. A record that is
// known to be decided is also accepted by nodes that have promised a later token or have forgotten one.
func (a *attempt) newCompleteRound(rec *wire.Record, ballot uint64, decided bool) *node.Round {
	a.mu.Lock()
	a.completionSent = true
	each := a.lock.Complete(len(a.nodes), func(i int) wire.Complete {
		return wire.Complete{
			Ballot:        ballot,
			Memory:        a.nodes[i].memory,
			Retention:     rec.Retention,
			Token:         rec.Token,
			Result:        rec.Result,
			TombstoneLife: a.p.tombstoneMillis,
			Decided:       decided,
			Channel:       a.bucket.Channel,
			Leaving:       a.leavingWaiter(),
		}
	})
	a.mu.Unlock()

	r := a.newRound(wire.OpComplete, (*node.Round).RecordDecided)
	r.AskTroubled = true
	r.Each = each
	r.PayloadSize = len(rec.Result)
	return r
}
