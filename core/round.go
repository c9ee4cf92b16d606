package core

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/wire"

	"github.com/lockkit/lockkit/core/internal/goredis"

	"github.com/lockkit/lockkit/core/internal/quorum"
)

// A round is one script on its way to some nodes, all at once, and the votes that come back. It is over as
// soon as its outcome is decided, whichever way, or at the node timeout; requests that are still under way
// then go on, and their replies are heard late.
type round struct {
	e       *ensemble
	p       *policy
	asker   asker // nil where nobody wants the replies but who waits for the round
	bucket  int   // of the guard record that the script looks at
	bulk    int   // bytes that a request brings along beside what each does
	request wire.Request
	each    wire.Each         // in its place, where nodes are asked differently; may be nil
	op      wire.Op           // of both
	head    *wire.Head        // when the round began
	must    bool              // ask nodes in trouble too
	decided func(*round) bool // more votes cannot change the outcome; nil = every one counts
	onOver  func()            // called without the lock when the round is over; nil where somebody waits for it

	nodeContext
	sent    clock.Instant // when the round began: trust starts here
	unasked []reply       // of nodes that are left alone, for the observer

	mu sync.Mutex
	quorum.Tally
	queued quorum.Set // requests that wait for their turn
	over   bool
	told   bool           // onOver was called
	waiter *waiter        // nil where nobody waits
	only   [1]quorum.Vote // room for one
}

// An asker is whose round it is. It hears each reply, also those that come when the round is over; the rounds that
// an attempt or a lease has under way all have the same one.
type asker interface {
	// sends books a request that is about to be sent to a node, and reports whether it may be.
	sends(op wire.Op, node int) bool
	// hear books a reply. It returns what the node's verdict amounts to, in the light of what the node was sent
	// before, and whether the reply shows that this machine's clock stood still.
	hear(op wire.Op, got reply) (v wire.Verdict, slept bool)
	// isEnded reports whether nothing of the attempt may be sent any more but its end.
	isEnded() bool
}

// A reply is a vote with its origin.
type reply struct {
	quorum.Vote
	node int
	sent clock.Instant
}

// send starts the round. Values of ctx reach the hooks of the clients; its end does not.
func (r *round) send(ctx context.Context, to quorum.Set) {
	r.begin(ctx, to)
	dispatch(r)
}

// dispatch asks the nodes. What rounds about one key ask of a node leaves in one batch, in their order.
func dispatch(rounds ...*round) {
	for i, n := range rounds[0].e.nodes {
		var room [2]request
		requests := room[:0]
		for _, r := range rounds {
			if q, ok := r.ask(i); ok {
				requests = append(requests, q)
			}
		}
		if len(requests) > 0 {
			n.lane(rounds[0].bucket).submit(requests...)
		}
	}
	for _, r := range rounds {
		r.begun()
	}
}

// begin sets out to ask some nodes: trust starts.
func (r *round) begin(ctx context.Context, to quorum.Set) {
	r.sent, r.head = r.e.clock.Now(), r.e.head.Load()
	r.nodeContext = nodeContext{values: ctx, deadline: time.Now().Add(r.p.nodeTimeout)}
	r.Tally = quorum.New(r.only[:0], len(r.e.nodes), to)
	r.queued = to
}

// ask is what the round asks of a node, if it may.
func (r *round) ask(i int) (q request, ok bool) {
	if !r.Asked.Has(i) {
		return request{}, false
	}
	n := r.e.nodes[i]
	b, err := n.admit(r.sent, r.p.nodeTimeout, r.must, r.op == wire.OpAcquire, r.bucket)
	if err != nil {
		v := quorum.Said(wire.CircuitOpen, err)
		r.hear(i, v)
		r.unasked = append(r.unasked, reply{v, i, 0})
		return request{}, false
	}
	if r.asker != nil && !r.asker.sends(r.op, i) {
		r.drop(n, b)
		return request{}, false
	}
	return request{r: r, b: b}, true
}

// begun notes that all nodes have been asked, and tells the observer of those that were not: it is the user's code,
// so it comes last.
func (r *round) begun() {
	r.mu.Lock()
	if r.Asked == 0 {
		r.finish()
	}
	r.unlock()
	for _, got := range r.unasked {
		r.p.tellReply(r.e.nodes[got.node], got.Vote, r)
	}
}

// to is what a node is asked.
func (r *round) to(node int) wire.Request {
	if r.each != nil {
		return r.each(node)
	}
	return r.request
}

// hear counts a vote, unless it comes late.
func (r *round) hear(i int, v quorum.Vote) {
	r.mu.Lock()
	defer r.unlock()
	if r.asker != nil {
		v.Verdict, v.Slept = r.asker.hear(r.op, reply{v, i, r.sent.Add(v.Waited)})
	}
	if r.over {
		return
	}
	r.Take(i, v)
	if r.Pending == 0 || r.decided != nil && r.decided(r) {
		r.finish()
	}
}

// finish ends the round. Called with its lock.
func (r *round) finish() {
	if r.over {
		return
	}
	r.over = true
	if r.waiter != nil {
		r.waiter.over <- struct{}{}
	}
}

// unlock unlocks the round, and tells that it is over if it is.
func (r *round) unlock() {
	tell := r.over && !r.told && r.onOver != nil
	r.told = r.told || tell
	r.mu.Unlock()
	if tell {
		r.onOver()
	}
}

// A waiter is what somebody waits for a round with. It is used again.
type waiter struct {
	over  chan struct{} // has room for one
	timer *time.Timer
}

func (e *ensemble) waiter(d time.Duration) *waiter {
	w, _ := e.waiters.Get().(*waiter)
	if w == nil {
		return &waiter{make(chan struct{}, 1), time.NewTimer(d)}
	}
	w.timer.Reset(d)
	return w
}

// wait returns when the round is over; false if ctx ended first, which ends the round. The votes are the
// caller's from then on.
func (r *round) wait(ctx context.Context) bool {
	w := r.e.waiter(r.p.nodeTimeout)
	r.mu.Lock()
	if !r.over {
		r.waiter = w
	} else {
		w.over <- struct{}{}
	}
	r.mu.Unlock()
	cancelled := false
	select {
	case <-w.over:
	case <-w.timer.C:
		r.expire()
		<-w.over
	case <-ctx.Done():
		r.leave()
		<-w.over
		cancelled = true
	}
	w.timer.Stop()
	r.e.waiters.Put(w)
	return !cancelled
}

// leave ends the round without waiting for it.
func (r *round) leave() {
	r.mu.Lock()
	defer r.unlock()
	r.finish()
}

// expire counts nodes that have not answered by the node timeout as timed out.
func (r *round) expire() {
	r.mu.Lock()
	defer r.unlock()
	for i := range r.Votes {
		if r.over {
			return
		}
		if r.Asked.Has(i) && r.Votes[i].Verdict == wire.Pending {
			v := quorum.Said(wire.TimedOut, r.e.nodes[i].noAnswer(r.bucket))
			v.Latency = r.p.nodeTimeout
			switch {
			case !r.queued.Has(i):
				if r.asker != nil {
					r.asker.hear(r.op, reply{v, i, r.sent})
				}
			case !r.ends(): // it is not sent any more
				v = quorum.Said(wire.CircuitOpen, goredis.ErrOverloaded)
			}
			r.Take(i, v)
		}
	}
	r.finish()
}

// tellReply tells the observer what a node made of a request.
func (p *policy) tellReply(n *node, v quorum.Vote, r *round) {
	if p.observer.Node != nil && int(r.op) < len(kinds) {
		p.observer.Node(&r.nodeContext, kinds[r.op], replyOf(n, &v))
	}
}

// kinds are those of the requests that observers hear of.
var kinds = [...]OpKind{wire.OpAcquire: OpAcquire, wire.OpRenew: OpRenew, wire.OpRelease: OpRelease, wire.OpComplete: OpComplete, wire.OpTouch: OpTouch}
