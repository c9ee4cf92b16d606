package node

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/goredis"
	"github.com/lockkit/lockkit/core/internal/quorum"
	"github.com/lockkit/lockkit/core/internal/wire"
	"github.com/lockkit/lockkit/internal/callback"
)

// A Round is one script on its way to some nodes, all at once, and the votes that come back. It is over as
// soon as its outcome is decided, whichever way, or at the node timeout; requests that are still under way
// then go on, and their replies are heard late.
type Round struct {
	*Bucket
	Timeout time.Duration
	Lease   time.Duration // for which a request that ends an attempt is worth sending; Timeout if that is more
	asker   Asker         // nil where nobody wants the replies but who waits for the round
	Bulk    int           // bytes that a request brings along beside what each does
	Request wire.Request
	Each    wire.Each         // in its place, where nodes are asked differently; may be nil
	op      wire.Op           // of both
	head    *wire.Head        // when the round began
	Must    bool              // ask nodes in trouble too
	Decided func(*Round) bool // more votes cannot change the outcome; nil = every one counts
	OnOver  func()            // called without the lock when the round is over; nil where somebody waits for it

	nodeContext
	Sent clock.Instant // when the round began: trust starts here

	mu sync.Mutex
	quorum.Tally
	queued quorum.Set // requests that wait for their turn
	over   bool
	waiter *waiter        // nil where nobody waits
	only   [1]quorum.Vote // room for one
}

// An Asker is whose round it is. It hears each reply, also those that come when the round is over; the rounds that
// an attempt or a lease has under way all have the same one.
type Asker interface {
	// Sends books a request that is leaving for a node, and reports whether it may: since the round began, the attempt or the
	// lease may have ended.
	Sends(op wire.Op, node int) bool
	// Hear books a reply. It returns what the node's verdict amounts to, in the light of what the node was sent
	// before, and whether the reply shows that this machine's clock stood still.
	Hear(op wire.Op, got Reply) (v wire.Verdict, slept bool)
	// Callbacks is where the observer is told of replies, if there is an observer.
	Callbacks() *callback.Queue
}

// A Reply is a vote with its origin.
type Reply struct {
	quorum.Vote
	Node int
	Sent clock.Instant
}

// Init sets what the round is about. asker is nil where nobody wants the replies but who waits for the round.
func (r *Round) Init(b *Bucket, op wire.Op, timeout time.Duration, asker Asker, decided func(*Round) bool) {
	r.Bucket = b
	r.op = op
	r.Timeout = timeout
	r.asker = asker
	r.Decided = decided
}

// Begin sets out to ask some nodes: trust starts.
func (r *Round) Begin(ctx context.Context, to quorum.Set) {
	r.Sent = r.Clock.Now()
	r.head = r.Head.Load()
	r.nodeContext = nodeContext{Context: ctx, deadline: time.Now().Add(r.Timeout), of: r.Group.deadlines}
	r.Tally = quorum.New(r.only[:0], len(r.Nodes), to)
	r.queued = to
	r.over = to == 0
}

// to is what a node is asked.
func (r *Round) to(node int) wire.Request {
	if r.Each != nil {
		return r.Each(node)
	}
	return r.Request
}

// hear counts a vote, unless it comes late.
func (r *Round) hear(i int, v quorum.Vote) {
	r.mu.Lock()
	defer r.unlock()
	if r.asker != nil {
		verdict, slept := r.asker.Hear(r.op, Reply{v, i, r.Sent.Add(v.Waited)})
		v.Verdict = verdict
		v.Slept = slept
	}
	if r.over {
		return
	}
	r.Take(i, v)
	if r.isDecided() {
		r.finish()
	}
}

func (r *Round) isDecided() bool {
	if r.Pending == 0 {
		return true
	}
	return r.Decided != nil && r.Decided(r)
}

// finish ends the round. Called with its lock.
func (r *Round) finish() {
	if r.over {
		return
	}
	r.over = true
	if r.waiter != nil {
		r.waiter.over <- struct{}{}
	}
}

// unlock unlocks the round, and tells that it is over if it is.
func (r *Round) unlock() {
	var tell func()
	if r.over {
		tell = r.OnOver
		r.OnOver = nil
	}
	r.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// Leave ends the round without waiting for it.
func (r *Round) Leave() {
	r.mu.Lock()
	defer r.unlock()
	r.finish()
}

// Expire counts nodes that have not answered by the node timeout as timed out.
func (r *Round) Expire() {
	r.mu.Lock()
	defer r.unlock()
	if r.over {
		return
	}
	for i := range r.Votes {
		if r.Asked.Has(i) && r.Votes[i].Verdict == wire.Pending {
			r.Take(i, r.expired(i))
		}
	}
	r.finish()
}

func (r *Round) expired(i int) quorum.Vote {
	queued := r.queued.Has(i)
	if queued && !r.ends() { // it is not sent any more
		return quorum.Said(wire.CircuitOpen, goredis.ErrOverloaded)
	}
	v := quorum.Said(wire.TimedOut, r.NoAnswer(i))
	v.Latency = r.Timeout
	if !queued && r.asker != nil {
		r.asker.Hear(r.op, Reply{v, i, r.Sent})
	}
	return v
}

// Outdated reports whether a longer lease is known by now than when the round began.
func (r *Round) Outdated() bool { return r.Head.Load() != r.head }

// tellReply tells the observer what a node made of a request. The way to the node does not wait for the observer.
func (r *Round) tellReply(n *Node, v *quorum.Vote) {
	observe := r.Conf.Observe
	if observe == nil {
		return
	}
	calls := &n.touches
	if r.asker != nil {
		calls = r.asker.Callbacks()
	}
	told := *v
	ctx := observedContext{r.nodeContext.Context, r.deadline}
	r.Group.Callbacks.Post(calls, func() { observe(ctx, r.op, n, &told) })
}
