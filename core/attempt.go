package core

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/node"
	"github.com/lockkit/lockkit/core/internal/queue"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
)

// An attempt asks the nodes for a key under a name of its own. It is known to the nodes by that name until they
// are told that it is over, whether it became a lease or not.
type attempt struct {
	e       *engine
	p       *policy
	lock    wire.Lock
	carries string
	waits   bool          // it is of a call that waits
	wait    *queue.Waiter // that call, once an attempt before has failed; nil = it is called as this one
	asked   wire.Stamp    // when the key was asked for last

	mu         sync.Mutex // guards a lease's state, too
	ended      bool       // nothing of it may be sent any more but its end
	token      uint64
	nodes      []nodeState
	only       [1]nodeState        // room for one
	reached    quorum.Set          // once it is a lease: nodes that were sent anything; they may have it
	notBefore  clock.AtomicInstant // nobody gets the key sooner, because of Cooldown; 0 = there is none. Read without the lock
	proposed   *wire.Record        // by the first Complete
	completing bool                // some node was sent a completion under the attempt's token
	queued     bool                // some node has the call in its queue
	quits      bool                // the call has ended
	seen       bool                // a quorum may have granted it, so others may have seen its token
}

// init names a new attempt. What the nodes remember is noted before the first request is sent.
func (a *attempt) init(e *engine, p *policy, key, resource string, carries string) {
	a.e, a.p, a.carries, a.lock = e, p, carries, e.Keys.Lock(key, resource, e.attempts.Add(1))
	a.nodes = a.only[:0]
	if len(e.Nodes) > 1 {
		a.nodes = make([]nodeState, 0, len(e.Nodes))
	}
	for _, n := range e.Nodes {
		a.nodes = append(a.nodes, nodeState{memory: n.Memory(a.lock.Bucket)})
	}
}

// attrs names the attempt's key in a log line.
func (a *attempt) attrs() slog.Attr {
	return slog.Group("", slog.String("name", a.p.name), slog.String("key_hash", keyHash(a.lock.Key)))
}

// trusted reports whether what was asked for at that time can be trusted still. It is looked at after every wait.
func (a *attempt) trusted(sent clock.Instant) bool {
	return sent.Add(a.p.validity-a.p.margin) > a.e.Clock.Now()
}

// over ends the attempt: nothing of it is sent any more but its end.
func (a *attempt) over() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
}

func (a *attempt) isEnded() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended
}

// round is a round of the attempt.
func (a *attempt) round(op wire.Op, decided func(*node.Round) bool) *node.Round {
	r := new(node.Round)
	r.Init(a.e.Group, op, a.lock.Bucket, a.p.nodeTimeout, (*asking)(a), decided)
	return r
}

// acquiring is the round that asks for the key; to settle a record that is not decided, if recovering: who comes for that
// waits for a node that shows it.
func (a *attempt) acquiring(recovering bool) *node.Round {
	r := a.round(wire.OpAcquire, (*node.Round).AcquireDecided)
	if recovering {
		r.Decided = (*node.Round).RecoverDecided
	}
	a.asked = wire.StampOf(time.Now())
	ask := wire.Acquire{Settle: recovering, Propose: a.asked, Carried: a.carries}
	if a.waits || a.wait != nil {
		ask.Channel = a.e.waits.Channels[a.lock.Bucket]
	}
	if a.wait != nil {
		ask.Waiter = a.wait.Name
	}
	r.Request = a.lock.Acquire(a.p.lease, ask)
	return r
}

// settleToken fixes the fencing token: the greatest one granted, once a quorum stores it. A node counts
// only while the lease is on it, for then its next grant must be greater. Where that fails, spoilt are the votes of
// nodes that do not have the lease any more, or are not known to.
func (a *attempt) settleToken(ctx, wait context.Context, t *quorum.Tally) (settled bool, spoilt []node.Reply) {
	token, stored := t.Token()
	a.mu.Lock()
	a.token = token
	a.mu.Unlock()
	if stored.Len() >= t.Q {
		return true, nil
	}
	r := a.round(wire.OpRenew, func(r *node.Round) bool { return r.Count(wire.Granted)+stored.Len() >= r.Q })
	r.Must, r.Each = true, a.lock.Renew(a.p.lease, len(t.Votes), func(i int) wire.Renew {
		return wire.Renew{Token: token, Granted: t.Votes[i].Token, Memory: t.Votes[i].Memory}
	})
	r.Send(ctx, t.With(wire.Granted)&^stored)
	r.Wait(wait)
	if r.Count(wire.Granted)+stored.Len() >= t.Q {
		return true, nil
	}
	for i, v := range r.Votes {
		if r.Asked.Has(i) && v.Verdict != wire.Granted {
			spoilt = append(spoilt, node.Reply{Vote: v, Node: i})
		}
	}
	return false, spoilt
}

// sends books a request that is about to be sent to a node, and reports whether it may be: when the attempt has
// ended nothing is sent any more but its end. What the nodes are told then depends on what was sent before.
func (a *attempt) sends(op wire.Op, node int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended && (op == wire.OpAcquire || op == wire.OpRenew) {
		return false
	}
	a.nodes[node].sends(op)
	return true
}

// noteAnswer notes that a node has answered a request, if it has. Called with the lock.
func (a *attempt) noteAnswer(op wire.Op, got node.Reply) {
	if got.Verdict != wire.CircuitOpen && goredis.Answered(got.Err) {
		a.nodes[got.Node].answers(op)
	}
}

// hear books a reply to one of the attempt's rounds.
func (a *attempt) hear(op wire.Op, got node.Reply) (v wire.Verdict, slept bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteAnswer(op, got)
	switch op {
	case wire.OpAcquire:
		a.queued = a.queued || got.Place > 0
		if got.Verdict == wire.Granted {
			a.granted(got)
		}
	case wire.OpRenew:
		_, slept = a.nodes[got.Node].confirms(got, a.p.Window)
	case wire.OpRelease:
		var again bool
		if got.Verdict, again = a.nodes[got.Node].ended(got, a.stay() > 0); again {
			a.endAgain(got.Node, a.p.nodeTimeout)
		}
	default: // whoever sent the others keeps what they said
	}
	return got.Verdict, slept
}

// granted books a grant, which may come after the outcome was decided. Called with the lock.
func (a *attempt) granted(got node.Reply) {
	s := &a.nodes[got.Node]
	s.granted(got)
	if !a.ended {
		return
	}
	switch hasten, again := s.late(); {
	case hasten:
		a.e.unheard.push(a, got.Node, 0)
	case again:
		a.endAgain(got.Node, 0)
	}
}

// stay is what is left of the cooldown of a lease that was released with one.
func (a *attempt) stay() time.Duration {
	return max(a.notBefore.Load().Since(a.e.Clock.Now()), 0)
}

// endAgain has a node told once more, in the background, after a delay. Called with the lock.
func (a *attempt) endAgain(i int, after time.Duration) {
	if a.e.unheard.push(a, i, after) {
		a.nodes[i].owed = owedAgain
	}
}

// unqueue has the end of the attempt take the call out of the queues, where it is called as this attempt.
func (a *attempt) unqueue() {
	a.mu.Lock()
	a.queued, a.quits = true, true
	a.mu.Unlock()
}

// quitting is the call in the queues of the nodes, which leave it out from then on; none while it goes on waiting, or
// never did. Called with the lock.
func (a *attempt) quitting() wire.Waiter {
	switch {
	case !a.queued || !a.quits && a.reached == 0:
		return wire.Waiter{}
	case a.wait != nil:
		return a.wait.Name.Quits()
	}
	return a.lock.Waiter()
}

// asking is an attempt as its rounds see it.
type asking attempt

func (a *asking) Sends(op wire.Op, node int) bool { return (*attempt)(a).sends(op, node) }
func (a *asking) IsEnded() bool                   { return (*attempt)(a).isEnded() }
func (a *asking) Hear(op wire.Op, got node.Reply) (wire.Verdict, bool) {
	return (*attempt)(a).hear(op, got)
}
