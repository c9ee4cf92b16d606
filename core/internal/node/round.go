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

// A Round sends one script to some nodes, all at once, and counts their votes. It is over as soon as its outcome is
// decided, or at the node timeout. Requests that are in flight then go on, and their late replies still reach the
// Asker.
//
// A round is prepared by Init and the exported fields, started by Send or Begin, and waited for by Wait or OnOver.
type Round struct {
	*Bucket
	Timeout     time.Duration
	LeaseTTL    time.Duration // how long a request that ends an attempt is worth sending; at least Timeout
	asker       Asker         // nil if only the caller that waits for the round wants the replies
	PayloadSize int           // size of the payload in bytes, beyond the size of a plain request
	Request     wire.Request
	Each        wire.RequestOf    // replaces Request if nodes get different requests; may be nil
	op          wire.Op           // of Request or Each
	head        *wire.Preamble    // as it was when the round began
	AskTroubled bool              // ask nodes in trouble, too
	Decided     func(*Round) bool // reports whether more votes cannot change the outcome; nil waits for every vote
	OnOver      func()            // called once, without the lock, when the round is over; nil if Wait is used

	nodeContext
	Sent clock.Instant // when the round began, before any request left: a lease is trusted from this moment

	// mu guards the fields below. It is held while the asker records a request or a reply. When the round is over, its
	// votes do not change any more, and the caller may read them without mu.
	mu sync.Mutex
	quorum.Tally
	queued     quorum.Set // nodes whose request still waits in a lane
	over       bool
	waiter     *waiter        // for the round; nil if no caller waits for it
	singleVote [1]quorum.Vote // room for the vote of a single node
}

// An Asker is the owner of a round. It receives each reply, even after the round is over. All rounds of an attempt
// and its lease have the same Asker.
type Asker interface {
	// StartSend records that a request is about to be sent to a node, and reports whether it may be: the attempt or the
	// lease may have ended since the round began.
	StartSend(op wire.Op, node int) bool
	// OnReply records a reply. It returns the verdict in the light of the requests that the node was sent before, and
	// whether the reply shows that this machine's clock stood still.
	OnReply(op wire.Op, got Reply) (v wire.Verdict, slept bool)
	// ReplyCallbacks returns the queue for calls of the observer about replies. It is not called if there is no observer.
	ReplyCallbacks() *callback.Queue
}

// A Reply is a vote with its origin.
type Reply struct {
	quorum.Vote
	Node int
	Sent clock.Instant // when the request left, which may be later than Round.Sent
}

// Init sets the bucket and the operation of the round. asker may be nil if only the caller that waits for the round
// wants the replies.
func (r *Round) Init(b *Bucket, op wire.Op, timeout time.Duration, asker Asker, decided func(*Round) bool) {
	r.Bucket = b
	r.op = op
	r.Timeout = timeout
	r.asker = asker
	r.Decided = decided
}

// Begin starts the round. A lease is trusted from this moment.
func (r *Round) Begin(ctx context.Context, to quorum.Set) {
	r.Sent = r.Clock.Now()
	r.head = r.Head.Load()
	r.nodeContext = nodeContext{Context: ctx, deadline: time.Now().Add(r.Timeout), deadlines: r.Group.deadlines}

	r.Tally = quorum.New(r.singleVote[:0], len(r.Nodes), to)
	r.queued = to
	r.over = to == 0
}

// requestFor returns the request to a node.
func (r *Round) requestFor(node int) wire.Request {
	if r.Each != nil {
		return r.Each(node)
	}
	return r.Request
}

// addVote passes a vote to the asker, and counts it unless the round is over.
func (r *Round) addVote(i int, v quorum.Vote) {
	r.mu.Lock()
	defer r.unlock()
	if r.asker != nil {
		verdict, slept := r.asker.OnReply(r.op, Reply{v, i, r.Sent.Add(v.QueueTime)})
		v.Verdict = verdict
		v.ClockStopped = slept
	}
	if r.over {
		return
	}

	r.Add(i, v)
	if r.isDecided() {
		r.finish()
	}
}

// isDecided reports whether no more votes are needed. r.mu must be held.
func (r *Round) isDecided() bool {
	if r.Pending == 0 {
		return true
	}
	return r.Decided != nil && r.Decided(r)
}

// finish ends the round and wakes its waiter. r.mu must be held.
func (r *Round) finish() {
	if r.over {
		return
	}
	r.over = true
	if r.waiter != nil {
		r.waiter.done <- struct{}{}
	}
}

// unlock unlocks r.mu and, if the round is over, calls OnOver once.
func (r *Round) unlock() {
	var onOver func()
	if r.over {
		onOver = r.OnOver
		r.OnOver = nil
	}
	r.mu.Unlock()

	if onOver != nil {
		onOver()
	}
}

// Abandon ends the round without waiting for it.
func (r *Round) Abandon() {
	r.mu.Lock()
	defer r.unlock()
	r.finish()
}

// TimeOut ends the round, and counts the missing votes as timeouts.
func (r *Round) TimeOut() {
	r.mu.Lock()
	defer r.unlock()
	if r.over {
		return
	}

	for i := range r.Votes {
		if r.Asked.Has(i) && r.Votes[i].Verdict == wire.Pending {
			r.Add(i, r.expireVote(i))
		}
	}
	r.finish()
}

// expireVote returns the vote of a node that has not answered by the node timeout. r.mu must be held.
func (r *Round) expireVote(i int) quorum.Vote {
	queued := r.queued.Has(i)

	// startSend rejects the request from now on, so the node was not asked.
	if queued && !r.endsAttempt() {
		return quorum.NewVote(wire.CircuitOpen, goredis.ErrOverloaded)
	}

	v := quorum.NewVote(wire.TimedOut, r.NoAnswerError(i))
	v.Latency = r.Timeout
	if !queued && r.asker != nil {
		r.asker.OnReply(r.op, Reply{v, i, r.Sent})
	}
	return v
}

// IsOutdated reports whether this process has learned of a longer max TTL since the round began.
func (r *Round) IsOutdated() bool { return r.Head.Load() != r.head }

// observeReply reports a node's reply to the observer, in the background: the lane does not wait for it.
func (r *Round) observeReply(n *Node, v *quorum.Vote) {
	observe := r.Conf.Observe
	if observe == nil {
		return
	}

	calls := &n.touchCalls
	if r.asker != nil {
		calls = r.asker.ReplyCallbacks()
	}

	vote := *v
	ctx := observedContext{r.nodeContext.Context, r.deadline}
	r.Group.Callbacks.Post(calls, func() { observe(ctx, r.op, n, &vote) })
}
