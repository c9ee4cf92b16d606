package core

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
)

// An attempt is one try to get a key, under a name that is used once. It records the requests that each node was sent
// and has answered, and the releases that it still owes each node when it ends. If a quorum grants the key, the
// attempt becomes a lease: its requests then renew the key, complete it or release it.
type attempt struct {
	e        *engine
	bucket   *node.Bucket // of the key
	p        *policy
	lock     wire.Lock     // names the attempt in requests
	metadata string        // the note, name and hint that the lease carries
	canWait  bool          // the call waits for the key
	waiter   *queue.Waiter // the call in the queues of the nodes; nil: nodes queue it under the attempt's own name
	lease    *Lease        // becomes valid when a quorum grants the key

	// callbacks orders the background calls of the observer. It belongs to the first attempt of the call.
	callbacks *callback.Queue

	requestedAt wire.Stamp // the time of the last request for the key, as the nodes know it

	// mu guards the fields below. It also guards the lifecycle of the lease, and its fields askedNodes, proposed,
	// renewal and onEnd. A lease and its attempt end in one step, so no goroutine sees one of them ended and the
	// other not.
	mu                 sync.Mutex
	phase              phase
	place              place
	token              uint64
	exposure           tokenExposure
	completionSent     bool       // a completion under the token has been sent to a node
	pendingCompletions quorum.Set // nodes for which a completion waits in the lane
	releaseSent        bool       // a release has been sent to a node
	nodes              []nodeState
	inlineNode         [1]nodeState // storage of nodes if there is only one
}

// A phase is the progress of an attempt.
type phase uint8

const (
	attemptAsking phase = iota // the nodes are asked for the key
	attemptHeld                // a quorum has granted it: the attempt is a lease
	attemptOver                // no request may be sent except the end of the attempt
)

// A place is the state of an attempt's call in the queues of the nodes.
type place uint8

const (
	unqueued place = iota
	queued         // a node has the call in its queue
	leaving        // a node has the call in its queue, or may have it, and the end of the attempt removes it
)

// A tokenExposure is the widest use of an attempt's token so far.
type tokenExposure uint8

const (
	tokenUnseen   tokenExposure = iota // the node that granted the token may grant it again
	tokenVisible                       // a quorum may have granted the key, so Inspect may have shown the token
	tokenReported                      // the attempt became a lease
)

// becomeLease makes the attempt a lease. Its call does not wait any more. a.mu must be held.
func (a *attempt) becomeLease() {
	a.phase = attemptHeld
	a.exposure = tokenReported
	if a.place == queued {
		a.place = leaving
	}
}

// markOver ends the attempt without sending anything.
func (a *attempt) markOver() {
	a.mu.Lock()
	a.phase = attemptOver
	a.mu.Unlock()
}

// isOver reports whether no request may be sent any more except the end of the attempt. a.mu must be held.
func (a *attempt) isOver() bool {
	switch a.phase {
	case attemptAsking:
		return false
	case attemptHeld:
		return !a.lease.isTrusted() || !a.lease.isWanted()
	default:
		return true
	}
}

// newRound returns a round of the attempt. A release or completion is worth sending for as long as the TTL.
func (a *attempt) newRound(op wire.Op, decided func(*node.Round) bool) *node.Round {
	r := new(node.Round)
	r.Init(a.bucket, op, a.p.nodeTimeout, a, decided)
	r.LeaseTTL = a.p.ttl
	return r
}

// newAcquireRound returns the round that asks for the key. If recovering, the attempt comes to settle an undecided
// completion record, and the round waits for a node that has the record.
func (a *attempt) newAcquireRound(recovering bool) *node.Round {
	decided := (*node.Round).AcquireDecided
	if recovering {
		decided = (*node.Round).SettleDecided
	}
	r := a.newRound(wire.OpAcquire, decided)

	a.requestedAt = wire.StampOf(time.Now())
	ask := wire.Acquire{Settle: recovering, ProposedToken: a.requestedAt, Carried: a.metadata}
	if a.canWait {
		ask.Channel = a.bucket.Channel
	}
	if a.waiter != nil {
		ask.Waiter = a.waiter.Name
	}

	r.Request = a.lock.Acquire(a.p.ttlMillis, ask)
	return r
}

// settleToken determines the fencing token, and reports whether the grants of a round that asked for the key make a
// lease.
//
// The token is the greatest that a node granted, once a quorum stores it. A node that granted a smaller one is asked
// to raise its counter to the token. The answer counts only while the node has the lease, because only then must the
// next token that the node grants be greater. If no quorum stores the token, lostVotes are the votes of the nodes that
// no longer have the lease, or have not answered this request.
//
// A node that had forgotten the longest max TTL may have voted too soon. If this process has learned of a longer one since
// the round began, none of the grants counts.
func (a *attempt) settleToken(ctx, waitCtx context.Context, asked *node.Round) (settled bool, lostVotes []node.Reply) {
	t := &asked.Tally
	_, _, same := t.SameServer()
	isWorthless := same || asked.IsOutdated()
	if isWorthless || t.Count(wire.Granted) < t.Q {
		return false, nil
	}

	token, stored := t.Token()
	a.mu.Lock()
	a.token = token
	a.mu.Unlock()
	if stored.Len() >= t.Q {
		return true, nil
	}

	// Write the token to the nodes that granted a smaller one, until a quorum stores it. Nodes in trouble are asked,
	// too, because they have just granted the key.
	r := a.newRound(wire.OpRenew, func(r *node.Round) bool {
		return r.Count(wire.Granted)+stored.Len() >= r.Q
	})
	r.AskTroubled = true
	r.Each = a.lock.Renew(a.p.ttlMillis, len(t.Votes), func(i int) wire.Renew {
		return wire.Renew{
			Token:   token,
			Granted: t.Votes[i].Token,
			Memory:  t.Votes[i].Memory,
		}
	})

	r.Send(ctx, t.WithVerdict(wire.Granted)&^stored)
	r.Wait(waitCtx)
	if r.Count(wire.Granted)+stored.Len() >= t.Q {
		return true, nil
	}

	for i, v := range r.Votes {
		isLost := r.Asked.Has(i) && v.Verdict != wire.Granted
		if isLost {
			lostVotes = append(lostVotes, node.Reply{Vote: v, Node: i})
		}
	}

	return false, lostVotes
}

// initRenewRound makes r the round that renews the lease on all nodes. a.mu must be held.
func (a *attempt) initRenewRound(r *node.Round) {
	r.Init(a.bucket, wire.OpRenew, a.p.nodeTimeout, a, (*node.Round).LeaseDecided)
	r.Each = a.lock.Renew(a.p.ttlMillis, len(a.nodes), func(i int) wire.Renew {
		return wire.Renew{
			Token:     a.token,
			Confirmed: a.nodes[i].expiry,
			Turn:      a.p.turnMillis,
			Carried:   a.p.metadata,
		}
	})
}
